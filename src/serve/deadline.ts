import { RequestError } from "./request-error.js";

/** The time from which on nobody waits for an answer. */
export interface Deadline {
  /** The work goes on after the deadline unless `giveUp` ends it. @throws RequestError 504 after the deadline */
  wait<T>(work: Promise<T>, giveUp?: () => void): Promise<T>;
}

/** @param ms from now on; undefined: whoever asks waits for as long as it takes */
export function deadlineIn(ms: number | undefined, nowMs: () => number): Deadline {
  if (ms === undefined) {
    return { wait: (work) => work };
  }
  const atMs = nowMs() + ms;
  return {
    async wait(work, giveUp = () => undefined) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        const end = (): void => {
          giveUp();
          reject(new RequestError(504, "the deadline of the request has passed"));
        };
        timer = setTimeout(end, atMs - nowMs());
      });
      try {
        return await Promise.race([work, late]);
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
