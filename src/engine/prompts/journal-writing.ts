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

/** A record that goes with each write, made when the write begins. */
export interface RecordOfWrite {
  readonly record: KeptAnswer;
  /** Called when it is durable. */
  readonly onDurable: () => void;
}

interface WritingOptions {
  /** How long a record waits before it is written; undefined: the store says it. */
  readonly flushMs: number | undefined;
  /** Returns the record that goes with the next write. @param isAlone nothing else is to be written; undefined: no record then */
  readonly alongside: (isAlone: boolean) => RecordOfWrite | undefined;
}

export function createJournalWriting({ flushMs, alongside }: WritingOptions): JournalWriting {
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let last = Promise.resolve();
  /** Whether `last` has not begun. It writes all that is pending then: writes that are slow become large, not many. */
  let isQueued = false;
  let failure: { readonly error: unknown } | undefined;
  const write = async (store: AnswerStore): Promise<void> => {
    isQueued = false;
    const more = alongside(pending.length === 0);
    const records = more === undefined ? pending : [...pending, more.record]; // it counts the answers before it
    pending = [];
    await (records.length === 0 ? undefined : store.keep(records));
    more?.onDurable();
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
