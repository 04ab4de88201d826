import { countAnswer, type PromptState, worstCase } from "./ask-row.js";
import type { ControlRequest } from "./client-failures.js";
import { type AskedPrompt, askPrompt } from "./request.js";
import { openSending } from "./sending.js";

/** A request of a few tokens, with its worst case in the journal. */
export function openControl(state: PromptState): ControlRequest {
  const asked = controlOf(state);
  const sending = openSending(state.answers.requests, worstCase(asked, 1), () => undefined);
  return {
    asked,
    sending,
    answered(answer) {
      countAnswer(state, answer);
    },
  };
}

/** A request of a few tokens. */
export function controlOf({ task, servers: [{ model }], form }: PromptState): AskedPrompt {
  const text = { texts: ["1"], columns: [] };
  const sampling = task.kind === "embedding" ? task.sampling : { [form.tokensKey]: 1 };
  return askPrompt(
    { ...task, system: undefined, text, sampling, response: undefined },
    { model, form, valueOf: () => "" },
  );
}
