import { countAnswer, countLost, type PromptState, worstCase } from "./ask-row.js";
import type { ControlRequest } from "./client-failures.js";
import { askPrompt } from "./request.js";

/** A request of a few tokens, of no row. */
export function openControl(state: PromptState): ControlRequest {
  const {
    task,
    servers: [{ model }],
    form,
  } = state;
  const text = { texts: ["1"], columns: [] };
  const sampling = task.kind === "embedding" ? task.sampling : { [form.tokensKey]: 1 };
  const small = { ...task, system: undefined, text, sampling, response: undefined };
  const asked = askPrompt(small, { model, form, valueOf: () => "" });
  return {
    asked,
    answered: (answer) => countAnswer(state, answer),
    onLost: () => countLost(state, worstCase(asked, 1)),
  };
}
