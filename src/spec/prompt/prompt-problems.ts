import type { ServerSpec } from "../server/server-spec.js";
import type { BudgetSpec, PromptSpec, SamplingSpec } from "./prompt-spec.js";

/** The keys of a model that is asked with prompts. */
export interface PromptKeys {
  readonly server?: Pick<ServerSpec, "protocol"> | undefined;
  readonly prompt?: PromptSpec | undefined;
  readonly sampling?: SamplingSpec | undefined;
  readonly response?: unknown;
  readonly budget?: BudgetSpec | undefined;
  readonly inputs?: unknown;
  readonly outputs?: unknown;
}

/** A key that is wrong beside others. */
export interface KeyProblem {
  readonly path: readonly string[];
  readonly message: string;
}

/** Finds keys of `model` that do not go with `server.protocol`, or with each other. */
export function promptProblems(keys: PromptKeys): KeyProblem[] {
  return keys.server?.protocol === "openai" ? problemsOfPrompt(keys) : keysWithoutPrompt(keys);
}

function keysWithoutPrompt(keys: PromptKeys): KeyProblem[] {
  const message = "only a model with server.protocol: openai takes this key";
  return (["prompt", "sampling", "response", "budget"] as const).flatMap((key) =>
    keys[key] === undefined ? [] : [{ path: [key], message }],
  );
}

function problemsOfPrompt({ prompt, sampling = {}, response, budget, inputs, outputs }: PromptKeys): KeyProblem[] {
  const problems: KeyProblem[] = [];
  if (prompt === undefined) {
    const message = 'expected the prompt of a row, such as { user: "{{body}}" }, since server.protocol is openai';
    return [{ path: ["prompt"], message }];
  }
  if (inputs !== undefined) {
    problems.push({ path: ["inputs"], message: "the columns that model.prompt names are the model's inputs" });
  }
  if (outputs !== undefined) {
    problems.push({ path: ["outputs"], message: "the columns of model.response are the model's outputs" });
  }
  if (response !== undefined && prompt.input !== undefined) {
    problems.push({ path: ["response"], message: "a text that is embedded gives one list column, `embedding`" });
  }
  const isLimited = budget?.max_tokens !== undefined || budget?.max_cost !== undefined;
  const isBounded = sampling.max_tokens !== undefined || sampling.max_completion_tokens !== undefined;
  if (isLimited && !isBounded && prompt.input === undefined) {
    const message = "expected model.sampling.max_tokens beside it: the cost of a request is not bounded otherwise";
    problems.push({ path: ["budget"], message });
  }
  return problems;
}
