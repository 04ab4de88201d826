import { fieldsOf } from "../../../util/checks.js";
import { BrokenTransfer } from "../../../net/http-failures.js";
import { ServerFault } from "../../served/message.js";
import { type ModelAnswer, readAnswer } from "../answer.js";
import { type PromptRefusal, promptRefusal } from "../refusals.js";
import type { PromptTask, RequestForm } from "../request.js";

/** What became of a request of a batch. */
export type LineOutcome =
  | { readonly kind: "answered"; readonly answer: ModelAnswer }
  /** It was not asked before the batch ended, and costs nothing. */
  | { readonly kind: "unasked" }
  | Exclude<PromptRefusal, { kind: "final" }>
  /** A refusal that no retry changes. */
  | { readonly kind: "final"; readonly status: number; readonly said: string };

/** A line of the output or error file of a batch. */
export interface ResultLine {
  /** `custom_id` of the request. */
  readonly key: string;
  readonly outcome: LineOutcome;
}

/** Errors of requests that a batch had no time for. */
const unasked: ReadonlySet<unknown> = new Set(["batch_expired", "batch_cancelled"]);

/**
 * Reads a line: https://platform.openai.com/docs/api-reference/batch/request-output
 * @throws BrokenTransfer if it is not JSON; MalformedAnswer if its answer is none of the protocol
 */
export function readResultLine(text: string, kind: PromptTask["kind"], form: RequestForm): ResultLine {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new BrokenTransfer("a line of the file is not JSON");
  }
  const { custom_id: key, response, error } = fieldsOf(json);
  if (typeof key !== "string") {
    throw new BrokenTransfer("a line of the file has no custom_id");
  }
  const { status_code: status, body } = fieldsOf(response);
  if (typeof status !== "number") {
    const { code, message } = fieldsOf(error);
    return unasked.has(code)
      ? { key, outcome: { kind: "unasked" } }
      : { key, outcome: { kind: "fault", message: `the batch has no answer: ${textOf(message ?? code)}` } };
  }
  return { key, outcome: status === 200 ? answered(body, kind) : refused(status, body, form) };
}

function answered(body: unknown, kind: PromptTask["kind"]): LineOutcome {
  try {
    return { kind: "answered", answer: readAnswer(body, kind) };
  } catch (error) {
    if (error instanceof ServerFault) {
      return { kind: "fault", message: error.message };
    }
    throw error;
  }
}

function refused(status: number, body: unknown, form: RequestForm): LineOutcome {
  const said = typeof body === "string" ? body : JSON.stringify(body ?? null);
  const found = promptRefusal({ status, headers: { get: () => null }, said }, form);
  return found.kind === "final" ? { kind: "final", status, said } : found;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value.replaceAll(/\s+/g, " ").trim().slice(0, 300) : "unknown error";
}
