import { type HttpProxy, s3Error, type Twist } from "./http-proxy.js";
import { until } from "./waiting.js";

/** A request at which a process dies. */
export interface Moment {
  readonly text: string;
  /** Called for each request until it returns true. */
  readonly isIt: (request: string) => boolean;
  /** Whether the request is carried out. */
  readonly after: boolean;
}

/** A request without what differs from one bucket, run and attempt to the next. */
const kindOf = (request: string): string =>
  request
    .replace(/bucket-\d+/, "")
    .replaceAll(/-r\d+/g, "")
    .replaceAll(/probe\.[^?& ]+|(?:continuation-token|pageToken|marker)=[^& ]+/g, "…")
    .replaceAll(/\d+/g, "#");

/** Numbers requests by their kinds, and says which are the last of their kind. */
export function numbered(requests: readonly string[]): { kind: string; nth: number; isLast: boolean }[] {
  const counts = new Map<string, number>();
  const all = requests.map((request) => {
    const kind = kindOf(request);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    return { kind, nth: counts.get(kind) ?? 0 };
  });
  return all.map(({ kind, nth }) => ({ kind, nth, isLast: nth === counts.get(kind) }));
}

export function nthMoment(kind: string, nth: number, after: boolean): Moment {
  let seen = 0;
  const isIt = (request: string): boolean => {
    seen += kindOf(request) === kind ? 1 : 0;
    return seen === nth;
  };
  return { text: `${after ? "after" : "before"} ${kind} #${nth}`, isIt, after };
}

/**
 * Refuses all requests from a moment on: for the store, the process that sends them is dead. The process soon ends.
 * Returns a function to call then: it lets requests on again when the store has answered those that were sent before, and
 * returns whether the moment has come.
 */
export function refuseFrom(proxy: HttpProxy, { isIt, after }: Moment): () => Promise<boolean> {
  const refusal = s3Error(403, "AccessDenied");
  let struck = false;
  proxy.twist = (request): Twist | undefined => {
    const isMoment = !struck && isIt(request);
    struck ||= isMoment;
    return isMoment && after && refusal.kind === "answer"
      ? { ...refusal, kind: "belie" }
      : struck
        ? refusal
        : undefined;
  };
  return async () => {
    proxy.twist = undefined;
    await until(() => proxy.underWay === 0);
    return struck;
  };
}
