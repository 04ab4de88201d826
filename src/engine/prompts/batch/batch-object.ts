import { fieldsOf } from "../../../util/checks.js";

/** A batch as the server describes it: https://platform.openai.com/docs/api-reference/batch/object */
export interface Batch {
  readonly id: string;
  readonly status: string;
  /** undefined: there is none yet. */
  readonly inputFile: string | undefined;
  readonly outputFile: string | undefined;
  readonly errorFile: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** Requests in all, and those with an answer; 0 where the server does not say. */
  readonly total: number;
  readonly completed: number;
  /** Why it failed, if it did: the code and the message of the first error. */
  readonly error: { readonly code: string; readonly message: string } | undefined;
}

/** A file that was uploaded. */
export interface UploadedFile {
  readonly id: string;
  readonly name: string;
}

/** A page of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Where the next page begins; undefined: this is the last one. */
  readonly after: string | undefined;
}

/** Reads a batch. undefined: it is none */
export function batchOf(json: unknown): Batch | undefined {
  const { id, status, metadata, request_counts: counts, errors, ...files } = fieldsOf(json);
  const { total, completed } = fieldsOf(counts);
  return typeof id !== "string" || typeof status !== "string"
    ? undefined
    : {
        id,
        status,
        inputFile: textOf(files["input_file_id"]),
        outputFile: textOf(files["output_file_id"]),
        errorFile: textOf(files["error_file_id"]),
        metadata: textsOf(metadata),
        total: countOf(total),
        completed: countOf(completed),
        error: errorOf(errors),
      };
}

/** Reads an uploaded file. undefined: it is none */
export function uploadedFileOf(json: unknown): UploadedFile | undefined {
  const { id, filename } = fieldsOf(json);
  return typeof id === "string" ? { id, name: textOf(filename) ?? "" } : undefined;
}

/** Reads a page of a list. @param read undefined: what it was given is no item */
export function pageOf<T extends { readonly id: string }>(
  json: unknown,
  read: (item: unknown) => T | undefined,
): Page<T> {
  const { data, has_more: hasMore } = fieldsOf(json);
  const items = (Array.isArray(data) ? data : []).flatMap((item) => read(item) ?? []);
  return { items, after: hasMore === true ? items.at(-1)?.id : undefined };
}

/** Whether a batch has ended, and its files are there. */
export function hasEnded({ status, completed, outputFile }: Batch): boolean {
  switch (status) {
    case "completed":
      return completed === 0 || outputFile !== undefined; // a server may name its files a little later
    case "failed":
    case "expired":
    case "cancelled":
      return true;
    default:
      return false;
  }
}

function errorOf(errors: unknown): Batch["error"] {
  const { data } = fieldsOf(errors);
  const [first]: unknown[] = Array.isArray(data) ? data : [];
  const { code, message } = fieldsOf(first);
  return first === undefined ? undefined : { code: textOf(code) ?? "", message: textOf(message) ?? "" };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(fieldsOf(value)).flatMap(([key, text]) => (typeof text === "string" ? [[key, text]] : [])),
  );
}

function countOf(value: unknown): number {
  return Number.isSafeInteger(value) ? Math.max(0, value as number) : 0;
}
