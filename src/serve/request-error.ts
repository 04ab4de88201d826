/** A request that is answered with a status of 4xx or 5xx, and what is wrong with it. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: number;
  /** More members of the answer's JSON. */
  readonly more: Readonly<Record<string, unknown>>;

  constructor(status: number, message: string, more: Readonly<Record<string, unknown>> = {}) {
    super(message);
    this.status = status;
    this.more = more;
  }
}

/** A value of JSON in a message: one that is nested may be so deep that it cannot be written. */
export function shownJson(value: unknown): string {
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? "a list" : "an object";
  }
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
