import { z } from "../base/zod.js";
import { JobError } from "../base/errors.js";
import { type DocumentKind, noteDocument, type Ledger, type Note } from "../stores/ledger.js";
import type { RunSink, Sink } from "../targets/target.js";
import type { RunState } from "./lifecycle/lifecycle.js";
import { numberedRunId } from "./plan/identity.js";
import { parseJson } from "./plan/parse-plan.js";
import type { Changes, RunId } from "./plan/plan.js";

/**
 * A chain: the runs of a job with `input.since`. Each reads what came after the run before it, and is published beside it:
 * a run with the param `run`, its number, in a folder of its own (Parquet) or in the table of all of them (Postgres).
 *
 * The range of a run, `{ from, to }`, is a note at the output of the whole chain, under the run's number: whoever stores it
 * first decides what the run reads, and others plan that range. It is stored when the run is planned, just before its plan.
 * Numbers have no gaps, and only the last run may be open: so the last one alone says where the next begins.
 *
 * | the last run is                         | run                            | run --new-run                            |
 * | --------------------------------------- | ------------------------------ | ---------------------------------------- |
 * | (there is none)                         | run 1, of all rows             | run 1, of all rows                       |
 * | not planned: its range alone is stored  | plan it                        | plan it                                  |
 * | unfinished, held, approved, superseded  | as any run (lifecycle.ts)      | as any run: another run of its range (a) |
 * | damaged                                 | as any run: refused            | as any run: another run of its range     |
 * | published, pruned                       | the next, from its `to` (b)    | the next, of all rows                    |
 * | discarded                               | the next, from its `from` (b)  | the next, of all rows                    |
 * | discarded with --skip                   | the next, from its `to` (b)    | the next, of all rows                    |
 *
 * (a) or, if that cannot be read any more, of all rows. So where a run has ended, its plan says.
 * (b) or, unless it is pruned, from where a later look has found no rows.
 */
export interface LinkedRun extends Pick<Changes, "from"> {
  /** Its number in the chain, from 1. */
  readonly run: number;
  /** null: its range is not stored yet. */
  readonly to: string | null;
}

export interface NextRun extends LinkedRun {
  /** Where the run before it has ended: before `from` if no rows came since. */
  readonly end: string | null;
}

export interface StoredLink extends LinkedRun {
  readonly to: string;
  /** When it was planned. ISO 8601, in UTC. */
  readonly at: string;
}

const range = z.object({ from: z.string().nullable(), to: z.string() });

const rangeNote = noteDocument("range");

function linkIn(run: number, { text, at }: Note): StoredLink {
  const parsed = range.safeParse(parseJson(text));
  if (!parsed.success) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `reading what run ${run} of the chain reads: ${JSON.stringify(text)} is no range`,
      {
        hint: "restore the notes of the chain at its output",
      },
    );
  }
  return { run, at, ...parsed.data };
}

/** A run of a chain, by its number; undefined: its range is not stored. */
export async function linkOf(ledger: Ledger, chain: RunId, run: number): Promise<StoredLink | undefined> {
  const note = await ledger.read(numberedRunId(chain, run), rangeNote);
  return note && linkIn(run, note);
}

/** The last run of a chain whose range is stored. It is found with some reads, however many runs there are. */
export async function lastLink(ledger: Ledger, chain: RunId): Promise<StoredLink | undefined> {
  let last = await linkOf(ledger, chain, 1);
  let missing = 2;
  for (let link = last; link !== undefined; link = await linkOf(ledger, chain, missing)) {
    last = link;
    missing = link.run * 2;
  }
  while (last !== undefined && missing - last.run > 1) {
    const middle = Math.floor((last.run + missing) / 2);
    const link: StoredLink | undefined = await linkOf(ledger, chain, middle);
    if (link === undefined) {
      missing = middle;
    } else {
      last = link;
    }
  }
  return last;
}

/**
 * undefined: nobody has begun it. @param requireUnused fails if the output has something else, or an attempt's folders
 */
export async function lastOrNone(
  ledger: Ledger,
  chain: RunId,
  requireUnused: () => Promise<void>,
): Promise<StoredLink | undefined> {
  const last = await lastLink(ledger, chain);
  if (last !== undefined) {
    return last;
  }
  try {
    await requireUnused();
    return undefined;
  } catch (error) {
    const begun = await lastLink(ledger, chain);
    if (begun === undefined) {
      throw error;
    }
    return begun;
  }
}

/** Stores the range of a run unless there is one. Returns the stored one, which is the first writer's. */
export async function storeLink(
  ledger: Ledger,
  chain: RunId,
  { run, from, to }: Omit<StoredLink, "at">,
  by: Pick<Note, "at" | "writer">,
): Promise<StoredLink> {
  const text = JSON.stringify({ from, to });
  return linkIn(run, await ledger.create(numberedRunId(chain, run), rangeNote, { ...by, text }));
}

type Range = Pick<Changes, "from" | "to">;

/** The range after a run in which no rows came. One that cannot be read is of no run. @public so that tests read it */
export const passedDocument: DocumentKind<Range> = {
  name: "passed",
  parse: (json) => range.safeParse(json).data ?? { from: "", to: "" },
};

/**
 * Stores that no rows came after a run, so that the next look begins later: what is before that may be cleaned up. Of two
 * looks at once either may win, as no rows are in either range.
 * @param base of the run, which is over
 */
export async function storePassed(ledger: Ledger, base: RunId, passed: Range): Promise<void> {
  await ledger.change(base, passedDocument, () => passed);
}

/** Whether no attempt and no person can go on with a run. */
function isOver({ kind }: RunState): boolean {
  return kind === "published" || kind === "discarded";
}

/**
 * The run that comes after the last one; undefined: the last one is open, and goes on.
 * @param sink of the last run, whose id is `base`
 * @param whenOver what is done with it if it is over
 */
export async function linkAfter(
  sink: Pick<Sink, "find" | "open" | "ledger">,
  base: RunId,
  { last, whenOver }: { readonly last: StoredLink; readonly whenOver: (run: RunSink) => Promise<void> },
): Promise<NextRun | undefined> {
  const run = last.run + 1;
  const stored = await sink.find(base);
  if (stored === undefined) {
    return undefined;
  }
  const { to = last.to } = stored.plan.input.changes ?? {};
  if (stored.pruned !== undefined) {
    return { run, end: to, from: to, to: null };
  }
  const opened = await sink.open(stored, { toDiscard: false });
  if (!isOver(opened.state)) {
    return undefined;
  }
  await whenOver(opened);
  const end = isRead(opened) ? to : last.from;
  const passed = await sink.ledger.read(base, passedDocument);
  return { run, end, from: passed?.from === end ? passed.to : end, to: null };
}

/** Whether later runs leave the rows of a run out that is over. A discarded erasure leaves those of the published run. */
function isRead({ state, plan }: Pick<RunSink, "state" | "plan">): boolean {
  return state.kind !== "discarded" || state.decision.skips === true || plan.erasure !== undefined;
}
