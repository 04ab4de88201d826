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
        await Promise.race(underWay);
      }
      throwIfFailed();
      const done = task();
      const tracked: Promise<void> = done
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => underWay.delete(tracked));
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
