import { fillPrompt } from "../../text/prompt-template.js";
import { bytesPerToken, type PromptTask } from "./request.js";

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
  const cut = truncate && cutValue(task, values, { ...truncate, mostBytes });
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
  { column, side, mostBytes }: NonNullable<PromptTask["truncate"]> & { readonly mostBytes: number },
): ReadonlyMap<string, string> | undefined {
  const places = [...(task.system?.columns ?? []), ...task.text.columns].filter((name) => name === column).length;
  const left = mostBytes - promptBytes(task, new Map([...values, [column, ""]]));
  if (places === 0 || left < 0) {
    return undefined;
  }
  const value = Buffer.from(values.get(column) ?? "", "utf8");
  const most = Math.floor(left / places);
  const kept =
    side === "end"
      ? value.subarray(0, characterBefore(value, most))
      : value.subarray(characterFrom(value, value.length - most));
  return new Map([...values, [column, kept.toString("utf8")]]);
}

/** The last place up to `at` at which a character begins: the bytes 10xxxxxx of UTF-8 continue one. */
function characterBefore(value: Buffer, at: number): number {
  let place = at;
  while (place > 0 && continues(value, place)) {
    place -= 1;
  }
  return place;
}

function characterFrom(value: Buffer, at: number): number {
  let place = at;
  while (place < value.length && continues(value, place)) {
    place += 1;
  }
  return place;
}

function continues(value: Buffer, at: number): boolean {
  return ((value[at] ?? 0) & 0xc0) === 0x80;
}
