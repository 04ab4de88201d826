import type { AnswerFault } from "../../columnar/types.js";
import { readAnswer, type ResponseValue } from "../../text/response.js";
import { fieldsOf, isCount } from "../../util/checks.js";
import { strictText } from "../../util/texts.js";
import type { TokenCount } from "../paid-engine.js";
import { MalformedAnswer, ServerFault } from "../served/protocol.js";
import type { PromptTask } from "./prompt.js";

/** The answer of a language model to one request. */
export interface ModelAnswer {
  /** The text; undefined: there is none. */
  readonly content: string | undefined;
  /** The vector of a text that was embedded; undefined: it was not. */
  readonly embedding: Float32Array<ArrayBuffer> | undefined;
  /** Why the text ends: "stop", "length"; null: the server does not say. */
  readonly finish: string | null;
  /** Whether the model refuses to answer. */
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

export type JudgedAnswer = PromptValues | PromptFault;

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
