/**
 * Keeps a rejection from counting as unhandled until the promise is awaited: whoever awaits it is told. For a promise
 * that is not awaited at once, or that nobody may need in the end.
 */
export function awaitedLater<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/** Waits until a promise is settled. For one whose rejection is told where its value was asked for. */
export async function settled(promise: Promise<unknown> | undefined): Promise<void> {
  await Promise.allSettled([promise]);
}

/** What was opened; undefined where that failed, of which whoever asked for it was told. For closing it. */
export async function ifOpened<T>(opening: Promise<T> | undefined): Promise<T | undefined> {
  const [result] = await Promise.allSettled([opening]);
  return result.status === "fulfilled" ? result.value : undefined;
}
