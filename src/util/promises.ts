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

/** A resource that is opened at its first use, and closed if it was opened. */
interface LazyResource<T> extends AsyncDisposable {
  open(): Promise<T>;
}

export function lazyResource<T extends AsyncDisposable | Disposable>(open: () => Promise<T>): LazyResource<T> {
  let opened: Promise<T> | undefined;
  return {
    open: () => (opened ??= open()),
    async [Symbol.asyncDispose]() {
      const found = await ifOpened(opened);
      if (found === undefined) {
        return;
      }
      await (Symbol.asyncDispose in found ? found[Symbol.asyncDispose]() : found[Symbol.dispose]());
    },
  };
}
