import type { AnswerFault } from "../../columns/types.js";
import {
  type PromptTemplate,
  type ResponseColumns,
  type ResponseValue,
  fillPrompt,
  readAnswer,
  responseSchema,
} from "../binding/prompt.js";
import { fieldsOf, isCount } from "../../base/guards.js";
import { sha256Of } from "../../base/sha256.js";
import { strictText } from "../../base/texts.js";
import type { TokenCount } from "../engine.js";
import { MalformedAnswer, ServerFault } from "../served/protocol.js";

/** What a language model is asked for each row. */
export interface PromptTask {
  /** chat: `/chat/completions`; embedding: `/embeddings`. */
  readonly kind: "chat" | "embedding";
  /** undefined: no system message. */
  readonly system: PromptTemplate | undefined;
  /** The user message, or the text that is embedded. */
  readonly text: PromptTemplate;
  /** More keys of each request. */
  readonly sampling: Readonly<Record<string, unknown>>;
  /** The columns that answers fill; undefined: one text. */
  readonly response: ResponseColumns | undefined;
  /** Longer prompts are not asked, or a value is cut. Default: any length. */
  readonly mostTokens?: number | undefined;
  /** The value that is cut; undefined: none is. */
  readonly truncate?: { readonly column: string; readonly side: "start" | "end" } | undefined;
  /** Columns that tell about answers. Default: none. */
  readonly answerColumns?: readonly AnswerColumn[] | undefined;
}

export type AnswerColumn = "prompt_tokens" | "completion_tokens" | "finish_reason" | "model";

/** Bytes of a token, about: English prose has four, code and other languages have fewer. */
export const bytesPerToken = 4;

/** What servers take in different forms. */
export interface RequestForm {
  /** Whether the server is asked for JSON that its schema describes. */
  readonly isStructured: boolean;
  /** The key for the most tokens of an answer. */
  readonly tokensKey: "max_tokens" | "max_completion_tokens";
}

/** A request for one row. */
export interface AskedPrompt {
  readonly body: Buffer<ArrayBuffer>;
  /** Hex SHA-256 of the body. */
  readonly sha256: string;
}

/** The form that is tried first. */
export function firstForm({ response, sampling }: PromptTask): RequestForm {
  const tokensKey = "max_completion_tokens" in sampling ? "max_completion_tokens" : "max_tokens";
  return { isStructured: response !== undefined, tokensKey };
}

/** Makes the request for a row. Equal rows make equal requests. @param values of the row, by column */
export function askPrompt(
  task: PromptTask,
  model: string,
  form: RequestForm,
  values: ReadonlyMap<string, string>,
): AskedPrompt {
  const [user = "", system] = promptTexts(task, values).toReversed();
  const messages = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    { role: "user", content: user },
  ];
  const asked = task.kind === "embedding" ? { input: user } : { messages };
  const body = Buffer.from(JSON.stringify({ model, ...asked, ...samplingOf(task, form), ...formatOf(task, form) }));
  return { body, sha256: sha256Of(body) };
}

/** Tokens that a chat template adds, about: for each message, and for the answer. */
const [tokensOfMessage, tokensOfAnswer] = [3, 3];

/** About how many tokens a prompt has besides its texts, as OpenAI counts them. */
export function templateTokens({ kind, system }: PromptTask): number {
  return kind === "embedding" ? 0 : tokensOfAnswer + tokensOfMessage * (system === undefined ? 1 : 2);
}

/** The most tokens of an answer; undefined: the spec does not say. */
export function mostCompletionTokens({ kind, sampling }: PromptTask): number | undefined {
  const given = sampling["max_tokens"] ?? sampling["max_completion_tokens"];
  return kind === "embedding" ? 0 : typeof given === "number" ? given : undefined;
}

function samplingOf({ sampling }: PromptTask, { tokensKey }: RequestForm): object {
  const { max_tokens: most, max_completion_tokens: mostCompletion, ...others } = sampling;
  const tokens = most ?? mostCompletion;
  return { ...others, ...(tokens === undefined ? {} : { [tokensKey]: tokens }) };
}

function formatOf({ response }: PromptTask, { isStructured }: RequestForm): object {
  return response === undefined || !isStructured
    ? {}
    : {
        response_format: {
          type: "json_schema",
          json_schema: { name: "response", strict: true, schema: responseSchema(response) },
        },
      };
}

type FittedPrompt =
  | { readonly kind: "values"; readonly values: ReadonlyMap<string, string> }
  | { readonly kind: "too long"; readonly message: string };

/** Cuts a value of a prompt that is too long, if the task says which. Equal rows are cut alike. */
export function fitPrompt(task: PromptTask, values: ReadonlyMap<string, string>): FittedPrompt {
  const { mostTokens, truncate } = task;
  if (mostTokens === undefined) {
    return { kind: "values", values };
  }
  const bytes = promptBytes(task, values);
  const mostBytes = mostTokens * bytesPerToken;
  if (bytes <= mostBytes) {
    return { kind: "values", values };
  }
  const cut = truncate && cutValue(task, values, truncate, mostBytes);
  const about = `the prompt has about ${Math.ceil(bytes / bytesPerToken)} tokens, and model.prompt.max_input_tokens is ${mostTokens}`;
  return cut === undefined ? { kind: "too long", message: about } : { kind: "values", values: cut };
}

/** The texts of a row's prompt, without what its request adds. */
export function promptTexts({ system, text }: PromptTask, values: ReadonlyMap<string, string>): string[] {
  const valueOf = (column: string): string => values.get(column) ?? "";
  return [...(system === undefined ? [] : [fillPrompt(system, valueOf)]), fillPrompt(text, valueOf)];
}

function promptBytes(task: PromptTask, values: ReadonlyMap<string, string>): number {
  return promptTexts(task, values).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}

/** undefined: the rest of the prompt is too long by itself. */
function cutValue(
  task: PromptTask,
  values: ReadonlyMap<string, string>,
  { column, side }: NonNullable<PromptTask["truncate"]>,
  mostBytes: number,
): ReadonlyMap<string, string> | undefined {
  const places = [...(task.system?.columns ?? []), ...task.text.columns].filter((name) => name === column).length;
  const left = mostBytes - promptBytes(task, new Map([...values, [column, ""]]));
  if (places === 0 || left < 0) {
    return undefined;
  }
  const value = Buffer.from(values.get(column) ?? "", "utf8");
  const most = Math.floor(left / places);
  let cutAt = side === "end" ? most : value.length - most;
  // The bytes 10xxxxxx of UTF-8 continue a character.
  while (((value[cutAt] ?? 0) & 0xc0) === 0x80) {
    cutAt += side === "end" ? -1 : 1;
  }
  const kept = side === "end" ? value.subarray(0, cutAt) : value.subarray(cutAt);
  return new Map([...values, [column, kept.toString("utf8")]]);
}

/** The answer of a language model to one request. */
export interface ModelAnswer {
  readonly content: string | undefined;
  /** The vector of a text that was embedded; undefined: it was not. */
  readonly embedding: Float32Array<ArrayBuffer> | undefined;
  /** Why the text ends: "stop", "length"; null: the server does not say. */
  readonly finish: string | null;
  readonly isRefusal: boolean;
  /** The model, as the server names it; undefined: it does not. */
  readonly model: string | undefined;
  /** undefined: the server does not say. */
  readonly tokens: TokenCount | undefined;
}

type Json = Readonly<Record<string, unknown>>;

/**
 * Reads the body of an answer with status 200.
 * @throws MalformedAnswer if it has no answer to a prompt; ServerFault if it has an error in its place, or is not JSON
 */
export function readAnswerBody(body: Uint8Array, kind: PromptTask["kind"]): ModelAnswer {
  let text: string;
  try {
    text = strictText(body);
  } catch {
    throw new MalformedAnswer("it is not UTF-8");
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new ServerFault("the answer is not JSON"); // of a proxy, or cut off
  }

  const answer = fieldsOf(json);
  const { model, usage, error } = answer;
  if (error !== undefined && error !== null) {
    throw new ServerFault(`the answer has an error in place of a result${codeIn(error)}`); // some gateways answer 200 to it
  }
  const named = typeof model === "string" && model !== "" ? model : undefined;
  const read = kind === "embedding" ? readEmbedding(answer) : readChoice(answer);
  return { model: named, tokens: tokensOf(usage), ...read };
}

/** The code of an error. Its message may quote the row, which belongs in no log. */
function codeIn(error: unknown): string {
  const { code, type } = fieldsOf(error);
  const found = typeof code === "number" ? String(code) : [code, type].find((one) => typeof one === "string");
  return typeof found === "string" && /^[\w.-]{1,60}$/.test(found) ? `: ${found}` : "";
}

type Read = Omit<ModelAnswer, "model" | "tokens">;

function readChoice({ choices }: Json): Read {
  const first: unknown = Array.isArray(choices) ? choices[0] : undefined;
  const { message, finish_reason: finish } = fieldsOf(first);
  if (message === undefined) {
    throw new MalformedAnswer("it has no `choices[0].message`");
  }
  const { content, refusal } = fieldsOf(message);
  const reason = typeof finish === "string" ? finish : null;
  return {
    content: typeof content === "string" ? content : undefined,
    embedding: undefined,
    finish: reason,
    isRefusal: (typeof refusal === "string" && refusal !== "") || reason === "content_filter",
  };
}

function readEmbedding({ data }: Json): Read {
  const first: unknown = Array.isArray(data) ? data[0] : undefined;
  const { embedding } = fieldsOf(first);
  const isVector =
    Array.isArray(embedding) && embedding.length > 0 && embedding.every((one) => typeof one === "number");
  if (!isVector) {
    throw new MalformedAnswer("it has no list of numbers at `data[0].embedding`");
  }
  return { content: undefined, embedding: Float32Array.from(embedding), finish: null, isRefusal: false };
}

function tokensOf(usage: unknown): TokenCount | undefined {
  const { prompt_tokens: prompt, completion_tokens: completion, prompt_tokens_details: details } = fieldsOf(usage);
  const { cached_tokens: cached } = fieldsOf(details);
  return isCount(prompt)
    ? {
        prompt,
        cached: isCount(cached) ? Math.min(cached, prompt) : 0,
        completion: isCount(completion) ? completion : 0,
      }
    : undefined;
}

/** The answer as it is kept: the parts that a later attempt needs. Texts that are no prediction are left out. */
export function keptText(
  { content, embedding, finish, isRefusal, model, tokens }: ModelAnswer,
  worker: number,
): string {
  return JSON.stringify({
    ...(content === undefined || isRefusal || finish === "length" ? {} : { content }),
    ...(embedding === undefined ? {} : { embedding: Buffer.from(embedding.buffer).toString("base64") }),
    finish,
    ...(isRefusal ? { refusal: true } : {}),
    ...(model === undefined ? {} : { model }),
    ...(tokens === undefined ? {} : { tokens: [tokens.prompt, tokens.cached, tokens.completion] }),
    ...(worker === 0 ? {} : { worker }),
  });
}

/** An answer that is kept. */
export interface PaidAnswer extends ModelAnswer {
  /** Index of the worker that paid for it. */
  readonly worker: number;
}

/** Parses a kept answer; undefined: it is none, and is asked for again. */
export function parseKept(text: string): PaidAnswer | undefined {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { content, embedding, finish, refusal, model, tokens, worker } = fieldsOf(json);
  if (finish !== null && typeof finish !== "string") {
    return undefined;
  }
  const counts: unknown[] = Array.isArray(tokens) ? tokens : [];
  const [prompt, cached, completion] = counts;
  return {
    content: typeof content === "string" ? content : undefined,
    embedding: typeof embedding === "string" ? vectorOf(embedding) : undefined,
    finish,
    isRefusal: refusal === true,
    model: typeof model === "string" ? model : undefined,
    tokens: isCount(prompt) && isCount(cached) && isCount(completion) ? { prompt, cached, completion } : undefined,
    worker: isCount(worker) ? worker : 0,
  };
}

function vectorOf(base64: string): Float32Array<ArrayBuffer> {
  const bytes = new Uint8Array(Buffer.from(base64, "base64"));
  return new Float32Array(bytes.buffer, 0, Math.floor(bytes.length / 4));
}

/** What an answer says of its row. */
export interface PromptValues {
  readonly kind: "values";
  readonly values: ReadonlyMap<string, ResponseValue>;
  readonly embedding: ModelAnswer["embedding"];
}

/** Why a row has no prediction. */
export interface PromptFault {
  readonly kind: "fault";
  /** undefined: the server fails on the row. */
  readonly reason: AnswerFault | undefined;
  readonly message: string;
}

type JudgedAnswer = PromptValues | PromptFault;

/** Reads the values of an answer. @param widthOf takes the width of a vector, and returns the one that all must have */
export function judgeAnswer(
  { kind, response }: PromptTask,
  answer: ModelAnswer,
  widthOf: (found: number) => number,
): JudgedAnswer {
  const { content, embedding, finish, isRefusal } = answer;
  if (kind === "embedding") {
    if (embedding === undefined || !embedding.every((value) => Number.isFinite(value))) {
      return fault("answer_invalid", "the answer is no vector of finite numbers");
    }
    const width = widthOf(embedding.length);
    return embedding.length === width
      ? { kind: "values", values: new Map(), embedding }
      : fault("answer_invalid", `the vector has ${embedding.length} values, and others have ${width}`);
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
  return "problem" in read ? fault("answer_invalid", read.problem) : { kind: "values", values: read.values, embedding };
}

function fault(reason: AnswerFault, message: string): PromptFault {
  return { kind: "fault", reason, message };
}
