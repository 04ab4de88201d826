import type { NamedTensor } from "../../columnar/tensor.js";
import { type PaidEngine, type Spending, sumOfSpent } from "../paid-engine.js";
import type { Engine, EngineResponse } from "../port.js";
import { serversText } from "../served/server.js";
import { answerOf, type PromptEngineOptions, type PromptState, requireModel, valuesOf } from "./ask-row.js";
import { createBudget } from "./budget.js";
import { openPromptClient } from "./client.js";
import { createGate } from "./gate.js";
import { openControl } from "./control-request.js";
import { createKeptAnswers, nothingSpent } from "./kept-answers.js";
import { fitPrompt, promptTexts } from "./fit-prompt.js";
import { firstForm, mostCompletionTokens, type PromptTask, templateTokens } from "./request.js";
import { promptSignature, tensorOf } from "./signature.js";

/** Asks a language model for each row. A batch is one row: rows are answered, and rejected, one by one. */
export function openPromptEngine(options: PromptEngineOptions): Engine {
  const { task, servers, limits, price, version, flushMs } = options;
  const doing = `asking ${serversText(servers)}`;
  const form = firstForm(task);
  const gate = createGate();
  const client = openPromptClient({
    kind: task.kind,
    servers,
    control: () => openControl(state),
    gate,
  });
  const budget = createBudget({ doing, limits, price });
  const state: PromptState = {
    ...options,
    doing,
    form,
    gate,
    client,
    answers: createKeptAnswers(flushMs),
    budget,
    underWay: new Map(),
    own: nothingSpent(),
    run: undefined,
    lost: 0,
    answered: version === "*" ? undefined : version,
    reused: 0,
    width: undefined,
  };
  return {
    signature: promptSignature(task),
    provider: "openai",
    // More rows than requests in flight: those that wait for a retry must not hold up others.
    concurrency: 2 * servers[0].most,
    mostRows: 1,
    traffic: client.traffic,
    paid: paidPart(state),
    run: (request) => run(state, request),
    [Symbol.asyncDispose]() {
      state.answers[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function paidPart(state: PromptState): PaidEngine {
  const { answers, limits, budget, price, task } = state;
  return {
    limits,
    get spending(): Spending {
      const { own, lost, reused } = state;
      const { earlier } = answers;
      return { own: { ...own }, earlier, run: state.run ?? sumOfSpent(own, earlier), lost, reused, price };
    },
    async recount(recorded) {
      const found = await answers.recount(state.own, (answer) => requireModel(state, answer));
      const other = await recorded(); // read later: who finishes the run records this before it removes the answers
      state.run = found && other && other.answers > found.answers ? other : found;
    },
    keep: () => answers.keep(),
    promptTexts(inputs) {
      const fitted = fitPrompt(task, valuesOf(inputs));
      return fitted.kind === "values" ? promptTexts(task, fitted.values) : []; // it is not asked
    },
    addsSpecialTokens: task.kind === "embedding",
    ...(task.mostTokens === undefined ? {} : { unaskable: (inputs) => tooLong(task, inputs) }),
    templateTokens: templateTokens(task),
    mostCompletionTokens: mostCompletionTokens(task),
    async begin(store, worker) {
      if (store !== undefined) {
        await answers.begin(store, worker.index, (answer) => requireModel(state, answer));
      }
      budget.begin(answers.before, worker.count);
      return {
        async [Symbol.asyncDispose]() {
          await answers.keep().catch(() => undefined); // a commit has reported the error, or another one ends the attempt
        },
      };
    },
  };
}

function tooLong(task: PromptTask, inputs: readonly NamedTensor[]): ReturnType<NonNullable<PaidEngine["unaskable"]>> {
  const fitted = fitPrompt(task, valuesOf(inputs));
  return fitted.kind === "too long" ? { reason: "prompt_too_long", message: fitted.message } : undefined;
}

async function run(
  state: PromptState,
  { inputs, outputs, isBlank }: Parameters<Engine["run"]>[0],
): Promise<EngineResponse> {
  if (isBlank === true) {
    return { kind: "failed", message: "made-up rows are not asked: answers cost money", inputs };
  }
  const values = valuesOf(inputs);
  const answer = await answerOf(state, values).catch((error: unknown) => {
    state.gate.close(error);
    throw error;
  });
  if (answer.kind === "fault") {
    const sent = fitPrompt(state.task, values);
    const all = [values, ...(sent.kind === "values" ? [sent.values] : [])];
    return { kind: "failed", message: withoutValues(answer.message, all), reason: answer.reason, inputs };
  }
  return { kind: "done", outputs: outputs.map((name) => tensorOf(state.task, answer, name)), ms: answer.ms, inputs };
}

/** Values of so many characters are removed from messages: shorter ones may be parts of other words. */
const quotedLength = 8;
/** A text that begins with so many characters of a value counts as the beginning of the value. */
const beginning = 24;

/**
 * What a server said, without values of the row that it may quote: they belong in no log.
 * @param values those of the row, and those that were sent: one of them may be cut
 */
function withoutValues(message: string, values: readonly ReadonlyMap<string, string>[]): string {
  let text = message;
  for (const value of new Set(values.flatMap((one) => [...one.values()]))) {
    for (const form of [value, JSON.stringify(value).slice(1, -1)]) {
      const plain = form.replaceAll(/\s+/g, " ").trim(); // as the message was made
      if (plain.length >= quotedLength) {
        text = text.replaceAll(plain, "…");
        const begun = text.indexOf(plain.slice(0, beginning)); // the message may end within it
        text = plain.length > beginning && begun >= 0 ? `${text.slice(0, begun)}…` : text;
      }
    }
  }
  return text;
}
