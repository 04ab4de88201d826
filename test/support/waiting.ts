import { setTimeout as sleep } from "node:timers/promises";

/** Waits until `condition` holds, however long that takes here: what it waits for in vain, the test's own limit ends. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) {
    await sleep(5);
  }
}

/** Promise.withResolvers, which Node 20 has not. */
export function latch<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  const settle: ((value: T) => void)[] = [];
  const promise = new Promise<T>((resolve) => {
    settle.push(resolve);
  });
  return { promise, resolve: (value) => settle[0]?.(value) };
}
