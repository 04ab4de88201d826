import { ifOpened } from "./promises.js";

/** A resource that is opened at its first use, and closed if it was opened. */
export interface LazyResource<T> extends AsyncDisposable {
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
