import { parseJson } from "../../plan/parse-plan.js";
import { type AttemptFailure, begunText, failureText, parseNotes } from "../../publish/attempt-failure.js";
import { parseSpending, type RecordedSpending, spendingText } from "../../publish/recorded-run.js";
import { type Fence, ifReadable, type ReadableStore, type Store, textAt } from "../../stores/store.js";
import { bestEffort } from "../../util/best-effort.js";
import { z } from "../../util/zod.js";
import type { RunSink } from "../port.js";
import type { RunNote, RunNotes } from "../run-notes.js";
import type { Layout } from "./layout.js";

const noteSchema = z.object({ at: z.string() });

/** Keeps each note on a run in a file. `writer` names this attempt. */
export function runNotes(
  store: Store,
  { notes }: Layout,
  { fence, writer }: { readonly fence: Fence; readonly writer: string },
): RunNotes {
  return {
    async add(note: RunNote, text) {
      const own = `${JSON.stringify({ at: new Date().toISOString(), writer, text })}\n`;
      await store.create(notes[note], own, fence);
      return (await textAt(store, notes[note])) === own;
    },
    async timeOf(note: RunNote) {
      const text = await textAt(store, notes[note]);
      // A note that cannot be parsed is there anyway.
      return text === undefined
        ? undefined
        : (noteSchema.safeParse(parseJson(text)).data?.at ?? new Date(0).toISOString());
    },
  };
}

/** Reads the last failure of a run; undefined: none is recorded. */
export async function lastFailureOf(store: ReadableStore, { errors }: Layout): Promise<AttemptFailure | undefined> {
  return parseNotes(await textAt(store, errors)).errors.at(-1);
}

/** This attempt's name, which spans are committed, and which processes of this machine have ended. */
interface NotesOf {
  readonly writer: string;
  readonly committed: Uint8Array;
  readonly isDead: (writer: string) => boolean;
}

/**
 * How a run's failures, attempts that resume it after one, and what it has paid for are recorded and read: texts that
 * inform people. If two workers write at the same moment, one may overwrite the other's.
 */
export function attemptNotes(
  store: Store,
  layout: Layout,
  { writer, committed, isDead }: NotesOf,
): Pick<
  RunSink,
  "lastFailure" | "isWorkedOn" | "recordBegun" | "recordFailure" | "recordSpending" | "recordedSpending"
> {
  const { plan, errors, spending: paid } = layout;
  return {
    lastFailure: () => lastFailureOf(store, layout),
    isWorkedOn: async () => parseNotes(await textAt(store, errors)).begun.some((begun) => !isDead(begun)),
    recordBegun: () =>
      bestEffort(async (stop) => {
        const notes = parseNotes(await textAt(store.within(stop), errors));
        // The list is only read after a failure.
        if (notes.errors.length > 0) {
          await store.within(stop).overwrite(errors, begunText(notes, writer));
        }
      }),
    async recordFailure({ code, message }) {
      if (code === store.failure && code !== "DISK") {
        return; // it is out of reach
      }
      const spansCommitted = committed.reduce((sum, flag) => sum + flag, 0);
      const failure = { at: new Date().toISOString(), writer, code, message, spansCommitted };
      await bestEffort(async (stop) => {
        const texts = store.within(stop);
        if ((await texts.stat(plan)) !== undefined) {
          await texts.overwrite(errors, failureText(parseNotes(await textAt(texts, errors)), failure));
        }
      });
    },
    recordSpending: (spending) =>
      bestEffort(async (stop) => {
        const texts = store.within(stop);
        // An attempt may not know the answers of other workers.
        const known = parseSpending(await textAt(texts, paid));
        if (spending.answers > (known?.answers ?? 0) && (await texts.stat(plan)) !== undefined) {
          await texts.overwrite(paid, spendingText(spending));
        }
      }),
    async recordedSpending() {
      let recorded: RecordedSpending | undefined;
      await bestEffort(async () => {
        recorded = await spendingOf(store, layout);
      });
      return recorded;
    },
  };
}

/** Reads what a run has paid for; undefined: no attempt has told. */
export async function spendingOf(store: ReadableStore, { spending }: Layout): Promise<RecordedSpending | undefined> {
  return parseSpending(await ifReadable(textAt(store, spending)));
}
