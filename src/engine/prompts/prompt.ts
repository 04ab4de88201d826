import { sha256Of } from "../../util/sha256.js";
import { fillPrompt, type PromptTemplate, type ResponseColumns, responseSchema } from "../../text/prompt.js";

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

/** The values of a row whose prompt is short enough, or why it is not. */
export type FittedPrompt =
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
