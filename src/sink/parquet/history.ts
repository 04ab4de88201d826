import { jobOf, splitRunId } from "../../plan/identity.js";
import type { RunId } from "../../plan/plan.js";
import { parseRunProfile } from "../../publish/profile-text.js";
import type { Pruning } from "../../publish/pruned-run.js";
import {
  asPruned,
  countsOf,
  type HistoryRequest,
  isUnfinished,
  type RecordedRun,
  recordedRun,
  recordedSpending,
} from "../../publish/recorded-run.js";
import { JobError } from "../../util/errors.js";
import type { StoredPlan } from "../port.js";
import { decisionDocument, errorsDocument, spendingDocument, verdictDocument } from "../ledger.js";
import { readDocument } from "./ledger.js";
import { ifReadable, namesIn, type ReadableStore } from "../../stores/store.js";
import { type Layout, layoutOf, plannedLayout } from "./layout.js";
import { type Manifest, publishedManifest, secondsOf } from "./manifest.js";
import { expand, foldersAtOnce, foldersLimit, type OtherFolders } from "./other-runs.js";
import { readPlan, runIdIn, runIdsIn } from "./plan-file.js";

/** Finds the latest runs of a job in the folder of this run and the folders of its other runs. */
export async function findHistory(
  store: ReadableStore,
  { folder, folders }: { readonly folder: string; readonly folders: OtherFolders },
  request: HistoryRequest,
): Promise<RecordedRun[]> {
  const { last, complete, runId, unfinishedBut } = request;
  const read = complete === true ? ifPermitted : ifReadable;
  // Only warnings depend on unfinished runs of other folders: a disk or a store that fails, the run itself reports.
  const orNone = <T>(found: Promise<T[]>): Promise<T[]> =>
    unfinishedBut === undefined ? found : found.catch(() => []);
  const others =
    runId === undefined ? await orNone(expand(store, folders, { most: Math.max(foldersLimit, last), read })) : [];
  const all = [...new Set(unfinishedBut === undefined ? [...others, folder] : others)];
  const byDate = all.toSorted((one, other) => (datesIn(one) < datesIn(other) ? 1 : -1));
  const found: RecordedRun[] = [];
  for (let start = 0; start < byDate.length && found.length < last; start += foldersAtOnce) {
    const group = byDate.slice(start, start + foldersAtOnce);
    const runs = await Promise.all(group.map((one) => orNone(runsIn(store, one, { ...request, read }))));
    found.push(...runs.flat());
  }
  return found;
}

/** Returns the key by which folders sort: the dates in the path, or the path if it has none. */
function datesIn(path: string): string {
  return path.match(/\d{4}-?\d{2}-?\d{2}/g)?.join() ?? path;
}

/** Finds the latest runs of a job in one folder. */
async function runsIn(
  store: ReadableStore,
  folder: string,
  { job, runId: only, last, read, others, unfinishedBut }: HistoryRequest & { readonly read: typeof ifReadable },
): Promise<RecordedRun[]> {
  const layout = layoutOf(folder, "" as RunId);
  const base = runIdIn(await read(store.readText(layout.claim)));
  if (base === undefined) {
    return [];
  }
  if (jobOf(base) !== job) {
    others?.jobs.add(jobOf(base));
    return [];
  }
  if (base === unfinishedBut) {
    return [];
  }
  const ids = ((await read(runIdsIn(store, layout))) ?? []).filter((name) => splitRunId(name).base === base);
  const newestFirst = ids.toSorted((one, other) => splitRunId(other).number - splitRunId(one).number);
  const latest = only === undefined ? newestFirst.slice(0, last + 1) : newestFirst;
  const finished = runIdIn(await read(store.readText(layout.success)));
  const isShown = finished !== undefined && unfinishedBut === undefined;
  const manifest = isShown ? publishedManifest(await read(store.readText(layout.manifest))) : undefined;
  const found: RecordedRun[] = [];
  let before: Pruning | undefined;
  let isOver = false; // a later run whose folder has notes only was never opened
  for (const runId of latest) {
    if (unfinishedBut !== undefined && (isOver || finished === runId)) {
      break; // of the runs before it none can be finished
    }
    const published = finished === runId && manifest?.run_id === runId ? manifest : undefined;
    const run = await runAt(store, layoutOf(folder, runId), { published, isOver });
    isOver ||= run !== undefined;
    const isTombstone = run?.pruned !== undefined;
    before = isTombstone ? run.pruned : before;
    if (run !== undefined && !isTombstone && (run.plan === undefined || run.plan.job === job)) {
      found.push(before === undefined ? run : prunedRun(run, before));
    }
  }
  return unfinishedBut === undefined
    ? found.filter((run) => (only ?? run.runId) === run.runId).slice(0, last)
    : found.slice(0, 1).filter(isUnfinished);
}

/** A run before a tombstone. Its manifest is gone: the tombstone has the counts of the run whose place it takes. */
function prunedRun(run: RecordedRun, pruned: Pruning): RecordedRun {
  const counts =
    run.runId === pruned.plan.runId ? { plan: pruned.plan, rows: pruned.rows, rejected: pruned.rejected } : {};
  return asPruned({ ...run, ...counts, spansCommitted: null }, pruned);
}

interface Place {
  /** The manifest, if this run is the published one. */
  readonly published: Manifest | undefined;
  /** Whether a later run was opened. */
  readonly isOver: boolean;
}

/** Reads the record of a run; undefined: it was never planned. */
async function runAt(store: ReadableStore, layout: Layout, place: Place): Promise<RecordedRun | undefined> {
  try {
    const stored = await readPlan(store, layout);
    if (stored?.pruned !== undefined) {
      const { runId, folder } = layout;
      return { ...unknownRun, runId, place: folder, status: "pruned", pruned: stored.pruned };
    }
    return stored === undefined ? undefined : await plannedRun(store, stored, { ...place, layout });
  } catch (error) {
    // A damaged run must not hide the others.
    if (error instanceof JobError && error.damage !== undefined) {
      return { ...unknownRun, runId: layout.runId, place: layout.folder, status: "damaged" };
    }
    throw error;
  }
}

const unknownRun = {
  plan: undefined,
  rows: null,
  rejected: null,
  spansCommitted: null,
  at: null,
  seconds: null,
  verdict: undefined,
  decision: undefined,
  failure: undefined,
};

async function plannedRun(
  store: ReadableStore,
  { plan }: StoredPlan,
  { published, isOver, layout: unstaged }: Place & { readonly layout: Layout },
): Promise<RecordedRun> {
  const { runId, staged, checks } = plan;
  const layout = plannedLayout(unstaged.folder, plan);
  const verdict = checks === null ? undefined : await readDocument(store, layout, verdictDocument);
  const decision = staged ? await readDocument(store, layout, decisionDocument) : undefined;
  const paid =
    plan.request.prompt === undefined ? undefined : await ifReadable(readDocument(store, layout, spendingDocument));
  const known = { runId, place: layout.folder, plan, verdict, decision, isOver, failure: undefined };
  if (published !== undefined) {
    const { rows, rows_rejected: rejected } = published;
    return recordedRun({
      ...known,
      rows,
      rejected,
      publishedAt: decision?.at ?? startedAt(published),
      spansCommitted: null,
      seconds: secondsOf(published),
      spending: recordedSpending(published.attempt) ?? paid,
    });
  }
  const common = { ...known, spending: paid, seconds: verdict?.seconds ?? null };
  const before = isOver && decision?.kind !== "discarded" ? await profileOf(store, layout) : undefined;
  if (before !== undefined) {
    // A profile is written when a run is published, so this run was published before a later run replaced it.
    const { rows, rejected } = before;
    return recordedRun({ ...common, rows, rejected, publishedAt: decision?.at ?? null, spansCommitted: null });
  }
  const spansCommitted = isOver ? null : await countCommitted(store, layout);
  const failure = (await readDocument(store, layout, errorsDocument))?.errors.at(-1);
  return recordedRun({ ...common, ...countsOf(verdict), spansCommitted, failure });
}

async function profileOf(
  store: ReadableStore,
  { profile }: Layout,
): Promise<{ rows: number; rejected: number } | undefined> {
  const text = await ifReadable(store.readText(profile));
  return text === undefined ? undefined : parseRunProfile(text);
}

async function countCommitted(store: ReadableStore, layout: Layout): Promise<number> {
  const names = await namesIn(store, layout.parts);
  return new Set(names.map((name) => layout.committedSpanOf(name)).filter((span) => span !== undefined)).size;
}

function startedAt({ attempt }: Manifest): string | null {
  const at = attempt?.["started_at"];
  return typeof at === "string" ? at : null;
}

/**
 * `ifReadable` where nothing may be overlooked.
 * @throws JobError PERMISSION if this user may not read it
 */
async function ifPermitted<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof JobError && error.code === "PERMISSION") {
      throw new JobError("PERMISSION", `looking for the runs of the job: ${error.message}`, {
        hint: "run the command as a user who may read all folders that may have runs of the job",
        cause: error,
      });
    }
    return await ifReadable(call);
  }
}
