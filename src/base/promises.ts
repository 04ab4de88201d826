/**
 * Keeps a rejection from counting as unhandled until the promise is awaited: its awaiter gets the error. For a promise
 * that is not awaited at once, or that may not be needed in the end.
 */
export function awaitedLater<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** Waits until a promise is settled. Its rejection is reported by the caller that uses its value. */
export async function settled(promise: Promise<unknown> | undefined): Promise<void> {
  await Promise.allSettled([promise]);
}

/**
 * Returns a resource once it is open, so that it can be closed; undefined: opening it failed, which another caller
 * reports.
 */
export async function ifOpened<T>(opening: Promise<T> | undefined): Promise<T | undefined> {
  const [result] = await Promise.allSettled([opening]);
  return result.status === "fulfilled" ? result.value : undefined;
}

/** Waits for work, but no longer than some time: then throws what `late` returns, and the work goes on. */
export async function within<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  try {
    return await Promise.race([work, over]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs `work` for each item, at most `atOnce` at a time. Resolves to the results in the order of the items. */
export async function mapBounded<T, R>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  for (let start = 0; start < items.length; start += atOnce) {
    results.push(...(await Promise.all(items.slice(start, start + atOnce).map(work))));
  }
  return results;
}

interface LazyResource<T> extends AsyncDisposable {
  open(): Promise<T>;
}

export function lazyResource<T extends AsyncDisposable | Disposable>(open: () => Promise<T>): LazyResource<T> {
  let opened: Promise<T> | undefined;
  return {
    open: () => (opened ??= open()),
    async [Symbol.asyncDispose]() {
      const resource = await ifOpened(opened);
      if (resource === undefined) {
        return;
      }
      await (Symbol.asyncDispose in resource ? resource[Symbol.asyncDispose]() : resource[Symbol.dispose]());
    },
  };
}

/** Makes a function that runs at most `limit` tasks at once, in the order of the calls. */
export function createLimit(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = limit;
  return async (work) => {
    if (free > 0) {
      free -= 1;
    } else {
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
      });
    }
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) {
        free += 1;
      } else {
        next();
      }
    }
  };
}

/**
 * Waits for a state to change. It carries no value: a waiter checks the state again when it is woken, in a loop, as
 * with a condition variable.
 */
export interface Condition {
  /** Resolves at the next call of `notify`. */
  wait(): Promise<void>;
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

interface OneTimeEvent {
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

const briefMs = 3000;

/**
 * Does work that only informs people. It ends after a few seconds, and never fails.
 * @param work its signal is aborted at the time limit
 */
export async function bestEffort(work: (stop: AbortSignal) => Promise<unknown>): Promise<void> {
  const controller = new AbortController();
  const stop = (): Error => {
    const error = new Error(`it takes more than ${briefMs / 1000} s`);
    controller.abort(error);
    return error;
  };
  await settled(within(work(controller.signal), briefMs, stop));
}
