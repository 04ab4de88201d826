import { ifOpened } from "./promises.js";
/** What is opened when it is first asked for, and closed if it was. */
export interface WhenNeeded<T> extends AsyncDisposable {
  open(): Promise<T>;
}

export function whenNeeded<T extends AsyncDisposable | Disposable>(open: () => Promise<T>): WhenNeeded<T> {
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
