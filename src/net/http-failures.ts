import { errnoOf, JobError } from "../util/errors.js";
import { connectionErrors, type Verdict } from "../util/retry.js";
import type { HttpAnswer, HttpPlace } from "./http-place.js";
import { isCertificateError, isTlsProtocolError } from "../util/tls-errors.js";

/** An answer that is neither a success nor a redirect. */
export class RefusedAnswer extends Error {
  readonly answer: HttpAnswer;

  constructor(answer: HttpAnswer) {
    super(`HTTP ${answer.status}`);
    this.answer = answer;
  }
}

/** A transfer that broke off, or that the server was silent in. Always transient. */
export class BrokenTransfer extends Error {}

const transientStatus: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Tells what a failed request means: whether to retry it, else the error to end with. */
export function verdictOf(place: HttpPlace, error: unknown): Verdict {
  const { refused, signal } = place;
  if (signal.aborted) {
    return { kind: "end", error: signal.reason };
  }
  if (error instanceof RefusedAnswer) {
    const { answer } = error;
    return transientStatus.has(answer.status)
      ? { kind: "again", found: `the server answered ${answer.status}` }
      : { kind: "end", error: refused(answer) };
  }
  if (error instanceof BrokenTransfer) {
    return { kind: "again", found: error.message };
  }
  return judgeConnection(place, error);
}

function judgeConnection({ doing }: HttpPlace, error: unknown): Verdict {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const errno = errnoOf(cause) ?? "";
    // UND_ERR_…: the client's own, such as a socket that was closed.
    if (connectionErrors.has(errno) || errno.startsWith("UND_ERR_")) {
      return { kind: "again", found: errno };
    }
    if (isCertificateError(errno)) {
      const hint = "set NODE_EXTRA_CA_CERTS to a file with the authority's certificate";
      const message = `${doing}: the server's certificate is not trusted: ${cause.message} (${errno})`;
      return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
    }
    if (isTlsProtocolError(errno)) {
      const message = `${doing}: the server does not speak TLS as this program does (${errno})`;
      return { kind: "end", error: new JobError("PERMISSION", message, { hint: checkUrl, cause: error }) };
    }
  }
  if (error instanceof TypeError && error.cause instanceof Error) {
    // `fetch` reports so what it never sends, such as a request to a port of another protocol.
    const message = `${doing}: the request failed: ${error.cause.message}`;
    return { kind: "end", error: new JobError("FILE_MISSING", message, { hint: checkUrl, cause: error }) };
  }
  return { kind: "end", error };
}

const checkUrl = "check the URL with curl -I";
