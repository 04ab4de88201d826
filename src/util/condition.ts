/**
 * Waits for a state to change. It carries no value: a waiter checks the state again when it is woken, in a loop, as
 * with a condition variable.
 */
export interface Condition {
  /** Resolves at the next call of `notify`. */
  wait(): Promise<void>;
  /** Wakes all waiters. */
  readonly notify: () => void;
}

export function createCondition(): Condition {
  let waiting: (() => void)[] = [];
  return {
    wait: () =>
      new Promise((resolve) => {
        waiting.push(resolve);
      }),
    notify() {
      const woken = waiting;
      waiting = [];
      for (const wake of woken) {
        wake();
      }
    },
  };
}

/** An event that happens once. It is reported to callers that wait before it and after it. */
export interface OneTimeEvent {
  readonly happened: Promise<void>;
  readonly set: () => void;
}

export function createEvent(): OneTimeEvent {
  let resolve: (() => void) | undefined;
  const happened = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { happened, set: () => resolve?.() };
}
