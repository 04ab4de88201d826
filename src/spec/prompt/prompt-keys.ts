import { columnsIn } from "../../text/prompt-template.js";
import { type BudgetSpec, budget, prompt, type PromptSpec, sampling, type SamplingSpec } from "./prompt-spec.js";
import { response } from "./response-spec.js";
import type { ResponseColumns } from "../../text/response.js";
import type { z } from "../../util/zod.js";
import type { ServerSpec } from "../server/server-spec.js";

/** The keys of a model of protocol openai. */
export interface PromptKeys {
  /** What it is asked for each row. `inputs` are its columns then. */
  readonly prompt?: PromptSpec | undefined;
  readonly sampling?: SamplingSpec | undefined;
  /** The columns that answers fill. Default: one text column. */
  readonly response?: ResponseColumns | undefined;
  readonly budget?: BudgetSpec | undefined;
}

export const promptKeys = {
  prompt: prompt.optional(),
  sampling: sampling.optional(),
  response: response.optional(),
  budget: budget.optional(),
};

interface GivenKeys extends PromptKeys {
  readonly server?: Pick<ServerSpec, "protocol"> | undefined;
  readonly inputs?: unknown;
  readonly outputs?: unknown;
}

/** A key that is missing, or does not go with other keys. */
interface KeyProblem {
  readonly path: readonly string[];
  readonly message: string;
}

/** Refuses keys of `model` that do not go with `server.protocol`, or with each other. */
export function checkPrompt(keys: GivenKeys, context: z.RefinementCtx): void {
  for (const { path, message } of keys.server?.protocol === "openai"
    ? problemsOfPrompt(keys)
    : keysWithoutPrompt(keys)) {
    context.addIssue({ code: "custom", path: [...path], message });
  }
}

/** Binds the columns that a prompt names as inputs of the model. */
export function withPromptInputs<T extends { readonly prompt?: PromptSpec | undefined }>(model: T): T {
  if (model.prompt === undefined) {
    return model;
  }
  const { system, user, input } = model.prompt;
  const columns = columnsIn([system, user, input]);
  return { ...model, inputs: Object.fromEntries(columns.map((column) => [column, [column]])) };
}

function keysWithoutPrompt(keys: GivenKeys): KeyProblem[] {
  const message = "only a model with server.protocol: openai takes this key";
  return (["prompt", "sampling", "response", "budget"] as const).flatMap((key) =>
    keys[key] === undefined ? [] : [{ path: [key], message }],
  );
}

function problemsOfPrompt({
  prompt: asked,
  sampling: more = {},
  response: columns,
  budget: limits,
  inputs,
  outputs,
}: GivenKeys): KeyProblem[] {
  const problems: KeyProblem[] = [];
  if (asked === undefined) {
    const message = 'expected the prompt of a row, such as { user: "{{body}}" }, since server.protocol is openai';
    return [{ path: ["prompt"], message }];
  }
  if (inputs !== undefined) {
    problems.push({ path: ["inputs"], message: "the columns that model.prompt names are the model's inputs" });
  }
  if (outputs !== undefined) {
    problems.push({ path: ["outputs"], message: "the columns of model.response are the model's outputs" });
  }
  if (columns !== undefined && asked.input !== undefined) {
    problems.push({ path: ["response"], message: "a text that is embedded gives one list column, `embedding`" });
  }
  const taken = asked.answer_columns?.find((column) => columns !== undefined && column in columns);
  if (taken !== undefined) {
    problems.push({ path: ["prompt", "answer_columns"], message: `model.response has a column ${taken}, too` });
  }
  const isLimited = limits?.max_tokens !== undefined || limits?.max_cost !== undefined;
  const isBounded = more.max_tokens !== undefined || more.max_completion_tokens !== undefined;
  if (isLimited && !isBounded && asked.input === undefined) {
    const message = "expected model.sampling.max_tokens as well: the cost of a request is not bounded otherwise";
    problems.push({ path: ["budget"], message });
  }
  return problems;
}

interface CheckedSpec {
  readonly model: Pick<PromptKeys, "prompt">;
  readonly checks?: { readonly golden?: unknown } | undefined;
}

/** Refuses golden rows of a language model. */
export function checkPromptedChecks({ model: { prompt: asked }, checks }: CheckedSpec, context: z.RefinementCtx): void {
  if (checks?.golden !== undefined && asked !== undefined) {
    const message = "golden rows of a language model would be paid for in each attempt";
    context.addIssue({ code: "custom", path: ["checks", "golden"], message });
  }
}

/** The key of a language model that a pipe cannot follow, and why; undefined: there is none. */
export function problemOfPipe({ budget: limits = {} }: GivenKeys): KeyProblem | undefined {
  const { max_tokens: tokens, max_cost: cost } = limits;
  const message = "a pipe stores no answers, and cannot hold its runs to a budget: use run, or leave it out";
  return tokens === undefined && cost === undefined ? undefined : { path: ["model", "budget"], message };
}
