import { within } from "../base/promises.js";
import { RequestError } from "./request-error.js";

/** The time from which on nobody waits for an answer. */
export interface Deadline {
  /** Receives the body of the request. @throws RequestError 408 after the deadline */
  receive<T>(body: Promise<T>): Promise<T>;
  /** The work goes on after the deadline unless `giveUp` ends it. @throws RequestError 504 after the deadline */
  wait<T>(work: Promise<T>, giveUp?: () => void): Promise<T>;
}

/** @param ms from now on; undefined: whoever asks waits for as long as it takes */
export function deadlineIn(ms: number | undefined, nowMs: () => number): Deadline {
  const atMs = nowMs() + (ms ?? 0);
  const before = <T>(work: Promise<T>, late: () => Error): Promise<T> =>
    ms === undefined ? work : within(work, atMs - nowMs(), late);
  return {
    receive: (body) => before(body, () => new RequestError(408, "the deadline has passed before the body came")),
    wait: (work, giveUp = () => undefined) =>
      before(work, () => {
        giveUp();
        return new RequestError(504, "the deadline of the request has passed");
      }),
  };
}
