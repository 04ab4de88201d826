/** A bounded number of tasks under way at once. The first failure is kept, and thrown to whoever comes next. */
export interface InFlight {
  /** Waits for room, then starts the task. Its end is `done`, which never counts as unhandled. */
  start(task: () => Promise<void>): Promise<{ readonly done: Promise<void> }>;
  /** Waits for all; throws the first failure. */
  drained(): Promise<void>;
  /** Waits for all, whatever became of them. */
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
