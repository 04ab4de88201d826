import { createHash, randomUUID } from "node:crypto";
import { decodeTexts, encodeTexts, type ModelSignature, type NamedTensor, type Tensor } from "../../columnar/tensor.js";
import { readAnswer, type ResponseColumn, type ResponseValue, wholeAnswer } from "../../text/response.js";
import { JobError } from "../../util/errors.js";
import {
  type PaidEngine,
  type Price,
  type Spending,
  type SpendingLimits,
  type Spent,
  sumOfSpent,
  type TokenCount,
} from "../paid.js";
import type { Engine, EngineResponse } from "../port.js";
import { type ModelServer, serversText } from "../served/server.js";
import type { ModelAnswer } from "./answer.js";
import { type Budget, createBudget } from "./budget.js";
import { type Asked, openPromptClient, type PromptClient } from "./client.js";
import { count, createKeptAnswers, type KeptAnswers, nothingSpent } from "./kept-answers.js";
import {
  askPrompt,
  type AskedPrompt,
  firstForm,
  mostCompletionTokens,
  type PromptTask,
  type RequestForm,
} from "./request.js";

export interface PromptEngineOptions {
  readonly task: PromptTask;
  /** At least one; all have the same model. */
  readonly servers: readonly [ModelServer, ...ModelServer[]];
  /** The name of the model that answers must have; "*": any; undefined: that of the first answer. */
  readonly version: string | undefined;
  /** How often a row is asked until its answer is valid. */
  readonly tries: number;
  /** After which an answer is durable. */
  readonly flushMs: number;
  readonly limits: SpendingLimits;
  readonly price: Price | undefined;
}

interface PromptState extends PromptEngineOptions {
  readonly doing: string;
  readonly client: PromptClient;
  readonly answers: KeptAnswers;
  readonly budget: Budget;
  /** Requests that are under way, so that equal ones are sent once. */
  readonly underWay: Map<string, Promise<RowAnswer>>;
  readonly own: ReturnType<typeof nothingSpent>;
  /** What all workers have spent, once it was counted. */
  run: Spent | undefined;
  form: RequestForm;
  /** The model in the answers so far. */
  answered: string | undefined;
  reused: number;
  /** Values of the vectors so far. */
  width: number | undefined;
}

/** The name of the list column that texts are embedded into. */
export const embeddingColumn = "embedding";

/** The inputs and outputs of a task: its columns, each a text, and those that answers fill. */
export function promptSignature({ kind, system, text, response }: PromptTask): ModelSignature {
  const columns = [...new Set([...(system?.columns ?? []), ...text.columns])];
  const inputs = columns.map((name) => ({ name, dtype: "string", shape: [null] }));
  const outputs =
    kind === "embedding"
      ? [{ name: embeddingColumn, dtype: "float32", shape: [null, null] }]
      : Object.entries(response ?? { [wholeAnswer]: { type: "string" } as const }).map(([name, { type }]) => ({
          name,
          dtype: dtypes[type],
          shape: [null],
        }));
  return { inputs, outputs };
}

const dtypes = { string: "string", number: "float64", integer: "int64", boolean: "bool" } as const satisfies Record<
  ResponseColumn["type"],
  string
>;

/** Asks a language model for each row. A batch is one row: rows are answered, and rejected, one by one. */
export function openPromptEngine(options: PromptEngineOptions): Engine {
  const { task, servers, limits, price, version, flushMs } = options;
  const doing = `asking ${serversText(servers)}`;
  const form = firstForm(task);
  const client = openPromptClient({
    kind: task.kind,
    servers,
    control: () => controlOf(state),
    onControl(answer) {
      count(state.own, answer);
      state.answers.add(sha256(`control ${randomUUID()}`), answer); // kept, so that it is counted
    },
  });
  const state: PromptState = {
    ...options,
    doing,
    form,
    client,
    answers: createKeptAnswers(flushMs),
    budget: createBudget({ doing, limits, price }),
    underWay: new Map(),
    own: nothingSpent(),
    run: undefined,
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
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

function paidPart(state: PromptState): PaidEngine {
  const { answers, limits, client, budget, price } = state;
  return {
    limits,
    get spending(): Spending {
      const { own, reused } = state;
      const { earlier } = answers;
      const both = state.run ?? sumOfSpent(own, earlier);
      return { own: { ...own }, earlier, run: both, lost: client.lost, reused, price };
    },
    async recount() {
      state.run = await answers.recount();
    },
    keep: () => answers.keep(),
    async begin(store, workers) {
      if (store !== undefined) {
        await answers.begin(store, (answer) => requireModel(state, answer));
      }
      budget.begin(answers.earlier, workers);
      return {
        async [Symbol.asyncDispose]() {
          await answers.keep().catch(() => undefined); // a commit has reported the error, or another one ends the attempt
        },
      };
    },
  };
}

async function run(
  state: PromptState,
  { inputs, outputs, isBlank }: Parameters<Engine["run"]>[0],
): Promise<EngineResponse> {
  if (isBlank === true) {
    return { kind: "failed", message: "made-up rows are not asked: answers cost money", inputs };
  }
  const values = new Map(inputs.map((input) => [input.name, textOf(input)]));
  const answer = await answerOf(state, values);
  if (answer.kind === "fault") {
    return { kind: "failed", message: withoutValues(answer.message, values), reason: answer.reason, inputs };
  }
  return { kind: "done", outputs: outputs.map((name) => tensorOf(state.task, answer, name)), ms: answer.ms, inputs };
}

/** The only text of a tensor with one row. */
function textOf(tensor: NamedTensor): string {
  const [text = ""] = tensor.dtype === "string" ? decodeTexts(tensor.data) : [];
  return text;
}

/** Values of so many characters are taken out of messages: shorter ones may be parts of other words. */
const quotedLength = 8;

/** What a server said, without values of the row that it may quote: they belong in no log. */
function withoutValues(message: string, values: ReadonlyMap<string, string>): string {
  let text = message;
  for (const value of values.values()) {
    if (value.trim().length >= quotedLength) {
      text = text.replaceAll(value.trim(), "…");
    }
  }
  return text;
}

/** The answer for a row, or why there is none. */
type RowAnswer =
  | {
      readonly kind: "values";
      readonly values: ReadonlyMap<string, ResponseValue>;
      readonly embedding: ModelAnswer["embedding"];
      readonly ms: number;
    }
  | {
      readonly kind: "fault";
      readonly reason: Extract<EngineResponse, { kind: "failed" }>["reason"];
      readonly message: string;
    };

/** Asks for a row until its answer is valid. */
async function answerOf(state: PromptState, values: ReadonlyMap<string, string>): Promise<RowAnswer> {
  const valueOf = (column: string): string => values.get(column) ?? "";
  const [{ model }] = state.servers;
  const { sha256 } = askPrompt(state.task, { model, form: state.form, valueOf });
  const same = state.underWay.get(sha256);
  if (same !== undefined) {
    state.reused += 1;
    return await same;
  }
  const asking = askUntilValid(state, () => askPrompt(state.task, { model, form: state.form, valueOf }));
  state.underWay.set(sha256, asking);
  try {
    return await asking;
  } finally {
    state.underWay.delete(sha256);
  }
}

async function askUntilValid(state: PromptState, makeRequest: () => AskedPrompt): Promise<RowAnswer> {
  let ms = 0;
  for (let number = 1; ; number += 1) {
    const asked = await askOnce(state, makeRequest, number);
    if (asked.kind !== "answered") {
      return { kind: "fault", reason: asked.reason, message: asked.message };
    }
    ms += asked.ms;
    const judged = judgeAnswer(state, asked.answer, ms);
    if (judged.kind === "values" || judged.reason !== "answer_invalid" || number >= state.tries) {
      return judged;
    }
  }
}

function judgeAnswer(state: PromptState, answer: ModelAnswer, ms: number): RowAnswer {
  const { kind, response } = state.task;
  const { content, embedding, finish, isRefusal } = answer;
  const fault = (reason: "answer_refused" | "answer_cut_off" | "answer_invalid", message: string): RowAnswer => ({
    kind: "fault",
    reason,
    message,
  });
  if (kind === "embedding") {
    if (embedding === undefined || !embedding.every((value) => Number.isFinite(value))) {
      return fault("answer_invalid", "the answer is no vector of finite numbers");
    }
    state.width ??= embedding.length;
    return embedding.length === state.width
      ? { kind: "values", values: new Map(), embedding, ms }
      : fault("answer_invalid", `the vector has ${embedding.length} values, and others have ${state.width}`);
  }
  if (isRefusal) {
    return fault("answer_refused", finish === "content_filter" ? "its answer was filtered" : "its answer is a refusal");
  }
  if (finish === "length") {
    return fault("answer_cut_off", "the answer is longer than model.sampling or the context allows");
  }
  if (content === undefined) {
    return fault("answer_invalid", "the answer has no text");
  }
  const read = readAnswer(content, response);
  return "problem" in read
    ? fault("answer_invalid", read.problem)
    : { kind: "values", values: read.values, embedding, ms };
}

type AskedOnce = Exclude<Asked, { kind: "form" }>;

/** Asks once, in the form that the server takes; or takes the answer that is kept. @param number counts tries from 1 */
async function askOnce(state: PromptState, makeRequest: () => AskedPrompt, number: number): Promise<AskedOnce> {
  for (;;) {
    const { form } = state;
    const asked = makeRequest();
    const key = number === 1 ? asked.sha256 : sha256(`${asked.sha256} ${number}`);
    const kept = state.answers.find(key);
    if (kept !== undefined) {
      state.reused += number === 1 ? 1 : 0;
      return { kind: "answered", answer: kept, ms: 0 };
    }
    const outcome = await send(state, asked, form);
    if (outcome.kind === "answered") {
      state.answers.add(key, outcome.answer);
    }
    if (outcome.kind !== "form") {
      return outcome;
    }
    if (state.form === form) {
      state.form = outcome.form;
      state.servers[0].retry.warn(formWarning(form, outcome));
    }
  }
}

function formWarning(before: RequestForm, { form, message }: Extract<Asked, { kind: "form" }>): string {
  return before.isStructured === form.isStructured
    ? `the server takes no max_tokens (${message}): max_completion_tokens is sent in its place`
    : `the server takes no response_format (${message}): answers are checked, but the server does not hold the model to the columns; tell it in model.prompt to answer in JSON`;
}

async function send(state: PromptState, asked: AskedPrompt, form: RequestForm): Promise<Asked> {
  const { client, budget, task } = state;
  state.answers.requireKept();
  const worst = worstCase(asked, mostCompletionTokens(task) ?? 0);
  const reservation = await budget.reserve(worst);
  try {
    const outcome = await client.ask({ asked, form, reservation });
    if (outcome.kind === "answered") {
      reservation.spent(outcome.answer.tokens ?? worst);
      count(state.own, outcome.answer);
      requireModel(state, outcome.answer);
    }
    return outcome;
  } finally {
    reservation.end();
  }
}

/** Tokens that chat templates add. */
const templateTokens = 64;

/** The most tokens that a request can take: a token has at least one byte. */
function worstCase({ body }: AskedPrompt, completion: number): TokenCount {
  return { prompt: body.length + templateTokens, cached: 0, completion };
}

/** @throws JobError MODEL_CHANGED if another model has answered before */
function requireModel(state: PromptState, { model }: ModelAnswer): void {
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

/** A request of a few tokens. */
function controlOf({ task, servers: [{ model }], form }: PromptState): AskedPrompt {
  const text = { texts: ["1"], columns: [] };
  const sampling = task.kind === "embedding" ? task.sampling : { [form.tokensKey]: 1 };
  return askPrompt(
    { ...task, system: undefined, text, sampling, response: undefined },
    { model, form, valueOf: () => "" },
  );
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function tensorOf(
  { response }: PromptTask,
  { values, embedding }: Extract<RowAnswer, { kind: "values" }>,
  name: string,
): Tensor {
  if (embedding !== undefined) {
    return { dtype: "float32", dims: [1, embedding.length], data: embedding };
  }
  const value = values.get(name);
  if (typeof value === "string") {
    return { dtype: "string", dims: [1], data: encodeTexts([value]) };
  }
  if (typeof value === "boolean") {
    return { dtype: "bool", dims: [1], data: Uint8Array.of(Number(value)) };
  }
  if (value === undefined) {
    throw new RangeError(`no answer has a column ${name}`);
  }
  return response?.[name]?.type === "integer"
    ? { dtype: "int64", dims: [1], data: BigInt64Array.of(BigInt(value)) }
    : { dtype: "float64", dims: [1], data: Float64Array.of(value) };
}
