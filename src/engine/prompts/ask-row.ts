import { createHash } from "node:crypto";
import { JobError } from "../../util/errors.js";
import type { Price, SpendingLimits, Spent, TokenCount } from "../paid-engine.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { ModelServer } from "../served/server.js";
import type { ModelAnswer } from "./answer.js";
import type { Budget } from "./budget.js";
import type { PromptClient } from "./client.js";
import type { Asked } from "./client-failures.js";
import type { Gate } from "./gate.js";
import { judgeAnswer, type PromptFault, type PromptValues } from "./judge-answer.js";
import { count, keyOfNoRow, type KeptAnswers, type nothingSpent } from "./kept-answers.js";
import { fitPrompt } from "./fit-prompt.js";
import {
  askPrompt,
  type AskedPrompt,
  bytesPerToken,
  mostCompletionTokens,
  type PromptTask,
  type RequestForm,
} from "./request.js";
import { textOf } from "./signature.js";

export interface PromptEngineOptions {
  readonly task: PromptTask;
  /** At least one; all have the same model. */
  readonly servers: readonly [ModelServer, ...ModelServer[]];
  /** The name of the model that answers must have; "*": any; undefined: that of the first answer. */
  readonly version: string | undefined;
  /** How often a row is asked until its answer is valid. */
  readonly tries: number;
  /** How long an answer waits before it is written, at most; undefined: the store says it. */
  readonly flushMs: number | undefined;
  readonly limits: SpendingLimits;
  readonly price: Price | undefined;
}

/** What the requests of an attempt share. */
export interface PromptState extends PromptEngineOptions {
  readonly doing: string;
  readonly gate: Gate;
  readonly client: PromptClient;
  readonly answers: KeptAnswers;
  readonly budget: Budget;
  /** Requests that are under way, so that equal ones are sent once. */
  readonly underWay: Map<string, Promise<AnsweredRow>>;
  readonly own: ReturnType<typeof nothingSpent>;
  /** What all workers have spent, once it was counted. */
  run: Spent | undefined;
  /** Requests whose answer was lost: they may have been paid for. */
  lost: number;
  form: RequestForm;
  /** The model in the answers so far. */
  answered: string | undefined;
  reused: number;
  /** Values of the vectors so far. */
  width: number | undefined;
}

/** What became of a row. */
export type AnsweredRow = (PromptFault | (PromptValues & { readonly answer: ModelAnswer })) & {
  /** Milliseconds that its requests took. */
  readonly ms: number;
};

/** The values of a row by column. */
export function valuesOf(inputs: readonly NamedTensor[]): ReadonlyMap<string, string> {
  return new Map(inputs.map((input) => [input.name, textOf(input)]));
}

/** Asks for a row until its answer is valid. */
export async function answerOf(state: PromptState, given: ReadonlyMap<string, string>): Promise<AnsweredRow> {
  const fitted = fitPrompt(state.task, given);
  if (fitted.kind === "too long") {
    return { kind: "fault", reason: "prompt_too_long", message: fitted.message, ms: 0 };
  }
  const { values } = fitted;
  const valueOf = (column: string): string => values.get(column) ?? "";
  const [{ model }] = state.servers;
  const { sha256: request } = askPrompt(state.task, { model, form: state.form, valueOf });
  const same = state.underWay.get(request);
  if (same !== undefined) {
    state.reused += 1;
    return await same;
  }
  const asking = askUntilValid(state, () => askPrompt(state.task, { model, form: state.form, valueOf }));
  state.underWay.set(request, asking);
  try {
    return await asking;
  } finally {
    state.underWay.delete(request);
  }
}

async function askUntilValid(state: PromptState, makeRequest: () => AskedPrompt): Promise<AnsweredRow> {
  let ms = 0;
  for (let number = 1; ; number += 1) {
    const asked = await askOnce(state, makeRequest, number);
    let fault: PromptFault;
    if (asked.kind === "answered") {
      ms += asked.ms;
      const judged = judgeAnswer(state.task, asked.answer, (width) => (state.width ??= width));
      if (judged.kind === "values") {
        return { ...judged, answer: asked.answer, ms };
      }
      fault = judged;
    } else {
      fault = { kind: "fault", reason: asked.reason, message: asked.message };
    }
    if (fault.reason !== "answer_invalid" || number >= state.tries) {
      return { ...fault, ms };
    }
  }
}

type AskedOnce = Exclude<Asked, { kind: "form" }>;

/** The key under which the answer to a request is kept. @param number counts tries from 1 */
function keyOfTry(request: string, number: number): string {
  return number === 1 ? request : sha256(`${request} ${number}`);
}

/** Asks once, in the form that the server takes; or takes the answer that is kept. @param number counts tries from 1 */
async function askOnce(state: PromptState, makeRequest: () => AskedPrompt, number: number): Promise<AskedOnce> {
  for (;;) {
    const { form } = state;
    const asked = makeRequest();
    const key = keyOfTry(asked.sha256, number);
    const kept = state.answers.find(key);
    if (kept !== undefined) {
      state.reused += number === 1 ? 1 : 0;
      return { kind: "answered", answer: kept, ms: 0 };
    }
    const outcome = await send(state, { asked, form, key });
    if (outcome.kind !== "form") {
      return outcome;
    }
    if (state.form === form) {
      state.form = outcome.form;
      state.servers[0].retry.warn(formWarning(form, outcome));
    }
  }
}

/** The warning when the server takes requests in another form. */
function formWarning(
  before: RequestForm,
  { form, message }: Pick<Extract<Asked, { kind: "form" }>, "form" | "message">,
): string {
  return before.isStructured === form.isStructured
    ? `the server takes no max_tokens (${message}): max_completion_tokens is sent in its place`
    : `the server takes no response_format (${message}): answers are checked, but the server does not hold the model to the columns; tell it in model.prompt to answer in JSON`;
}

interface SentRow {
  readonly asked: AskedPrompt;
  readonly form: RequestForm;
  /** The key under which the answer is kept. */
  readonly key: string;
}

async function send(state: PromptState, { asked, form, key }: SentRow): Promise<Asked> {
  const { client, budget, task, gate, answers } = state;
  answers.requireKept();
  const worst = worstCase(asked, mostCompletionTokens(task) ?? 0);
  const reservation = await budget.reserve(worst);
  const onLost = (): void => {
    reservation.lost();
    countLost(state, worst);
  };
  try {
    gate.requireOpen();
    const { ready } = reservation;
    const outcome = await client.ask({ asked, form, ready, onLost, tokens: likelyTokens(worst) });
    if (outcome.kind !== "answered") {
      return outcome;
    }
    // Where the server names no tokens, a later attempt must find what the budget has counted.
    const answer = {
      ...outcome.answer,
      tokens: outcome.answer.tokens ?? (isBounded(state.limits) ? worst : undefined),
    };
    reservation.spent(answer.tokens ?? worst);
    keepingModel(state, answer);
    count(state.own, answer);
    answers.add(key, answer);
    return { ...outcome, answer };
  } finally {
    reservation.end();
  }
}

function isBounded({ tokens, cost }: SpendingLimits): boolean {
  return tokens !== undefined || cost !== undefined;
}

/** Tokens that chat templates add. */
const templateTokens = 64;

/** The most tokens that a request can take: a token has at least one byte. */
export function worstCase({ body }: AskedPrompt, completion: number): TokenCount {
  return { prompt: body.length + templateTokens, cached: 0, completion };
}

/** Tokens as servers count them before they answer: a token has about four bytes, and the answer may be as long as allowed. */
function likelyTokens({ prompt, completion }: TokenCount): number {
  return Math.ceil(prompt / bytesPerToken) + completion;
}

/** @throws JobError MODEL_CHANGED if another model has answered before */
export function requireModel(state: PromptState, { model }: ModelAnswer): void {
  if (model === undefined || state.version === "*") {
    return;
  }
  state.answered ??= model;
  if (model !== state.answered) {
    const { doing, version } = state;
    const due = version === undefined ? "earlier answers of this run name" : "model.server.version is";
    throw new JobError("MODEL_CHANGED", `${doing}: the answer names model ${model}, and ${due} ${state.answered}`, {
      hint: 'serve that model again and run the same command; abandon this run with --new-run; or allow any name with model.server.version: "*"',
    });
  }
}

/** Counts an answer that is of no row. */
export function countAnswer({ own, answers }: PromptState, { tokens }: Pick<ModelAnswer, "tokens">): void {
  const answer = { content: undefined, embedding: undefined, finish: null, isRefusal: false, model: undefined, tokens };
  count(own, answer);
  answers.add(keyOfNoRow(), answer); // what is kept is what was spent
}

/** Counts a request whose answer was lost: it may have been paid for. @param worst the most that it may have taken */
export function countLost(state: PromptState, worst: TokenCount): void {
  state.lost += 1;
  state.answers.addLost(worst);
}

/** @throws JobError MODEL_CHANGED if another model has answered: what that cost is counted */
function keepingModel(state: PromptState, answer: ModelAnswer): void {
  try {
    requireModel(state, answer);
  } catch (error) {
    countAnswer(state, answer);
    throw error;
  }
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
