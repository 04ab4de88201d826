import { createCondition } from "../util/promises.js";

/** Runs a bounded number of tasks at once. The next call after a failure throws the first one. */
export interface InFlight {
  /** Waits until fewer than the limit are running, then starts the task. `done`: its end, which never counts as unhandled. */
  start(task: () => Promise<void>): Promise<{ readonly done: Promise<void> }>;
  /** Waits for all; throws the first failure. */
  drained(): Promise<void>;
  /** Waits for all, and throws nothing. */
  settled(): Promise<void>;
}

export function createInFlight(limit: number): InFlight {
  const underWay = new Set<Promise<void>>();
  const ended = createCondition();
  let failure: { readonly error: unknown } | undefined;
  const throwIfFailed = (): void => {
    if (failure !== undefined) {
      throw failure.error;
    }
  };
  const settled = async (): Promise<void> => {
    await Promise.allSettled(underWay);
  };
  return {
    async start(task) {
      while (underWay.size >= limit) {
        await ended.wait(); // a race of hundreds of promises would cost more than the tasks
      }
      throwIfFailed();
      const done = task();
      const tracked: Promise<void> = done
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => {
          underWay.delete(tracked);
          ended.notify();
        });
      underWay.add(tracked);
      return { done };
    },
    async drained() {
      await settled();
      throwIfFailed();
    },
    settled,
  };
}
