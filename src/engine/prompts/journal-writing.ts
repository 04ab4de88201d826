import { awaitedLater } from "../../util/promises.js";
import type { AnswerStore, KeptAnswer } from "../paid-engine.js";

/** Writes what is kept of a run to a store, several records at a time. */
export interface JournalWriting {
  store: AnswerStore | undefined;
  /** Adds a record, whose write begins a little later, or when the write before has ended. */
  add(record: KeptAnswer): void;
  /** Writes all records so far, and resolves when they are durable. @throws the error of the store, from then on in each call */
  flush(this: void): Promise<void>;
  /** @throws the error of the store if records could not be kept */
  requireKept(this: void): void;
}

/** @param flushMs how long a record waits before it is written; undefined: the store says it */
export function createJournalWriting(flushMs: number | undefined): JournalWriting {
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let last = Promise.resolve();
  /** Whether `last` has not begun. It writes all that is pending then: writes that are slow become large, not many. */
  let isQueued = false;
  let failure: { readonly error: unknown } | undefined;
  const write = async (store: AnswerStore): Promise<void> => {
    isQueued = false;
    const records = pending;
    pending = [];
    await (records.length === 0 ? undefined : store.keep(records));
  };
  const flush = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const { store } = writing;
    if (store !== undefined && !isQueued) {
      isQueued = true;
      last = last.then(() => write(store)); // calls never overlap; after a failure each fails
      last.catch((error: unknown) => {
        failure ??= { error };
        pending = []; // no write follows
      });
    }
    return last;
  };
  const writing: JournalWriting = {
    store: undefined,
    flush,
    add(record) {
      if (writing.store === undefined) {
        return; // a pipe keeps none
      }
      pending.push(record);
      timer ??= setTimeout(() => void awaitedLater(flush()), flushMs ?? writing.store.pauseMs);
    },
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
  };
  return writing;
}
