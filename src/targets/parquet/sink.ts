import { quoteName } from "../../base/sql.js";
import type { DuckDb, DuckDbAccess, DuckDBConnection } from "../../duckdb/instance.js";
import { numberedRunId } from "../../run/plan/identity.js";
import type { Plan, Span } from "../../run/plan/plan.js";
import { requireKept } from "../../run/lifecycle/pruned-run.js";
import { flush, type Store } from "../../stores/store.js";
import { type ErrorCode, JobError, messageOf } from "../../base/errors.js";
import type { AttemptJson, Opening, RunSink, RunWriter, Sink, StoredPlan } from "../target.js";
import { commitSpan, encodePiece } from "./commit.js";
import { createInPlace, openAnswerFiles, openLedger, readDocument, refuseStopped } from "./ledger.js";
import {
  findHistory,
  findPublished,
  findPublishedParts,
  type OtherFolders,
  pruneFolder,
  readPinnedRun,
} from "./other-runs.js";
import { layoutOf, plannedLayout } from "./layout.js";
import { createPlan, damagedOutput, findPlan, hidden, planCheck, readPlan, refuseForeign } from "./plan-file.js";
import { unlink } from "node:fs/promises";
import { mergeProfiles, noRows, parseProfile, type SpanProfile } from "../../checks/profile/profile.js";
import type { RejectedRow, SpanOutput } from "../../columns/types.js";
import { spanCount } from "../../run/plan/spans.js";
import { type CommittedBy, countSpans, type SpanFile } from "../../run/lifecycle/span-record.js";
import { runProfileOf, runProfileText } from "../../run/lifecycle/profile-text.js";
import { requireApproved } from "../../run/lifecycle/lifecycle.js";
import type { Compression } from "../../job/jobfile/output-spec.js";
import { decisionDocument, readState } from "../../stores/ledger.js";
import { checkFinished, keptOf } from "./manifest.js";
import {
  type BeyondFolder,
  committedParts,
  type CommittedSpans,
  listParts,
  partProfiles,
  readCommitted,
  readProfiles,
  readRejects,
  type RunFolder,
  type SpilledPiece,
  staleRejects,
} from "./parts.js";
import { clearEarlierRuns, clearRun, publishRun } from "./publish.js";
import type { KeyCounts } from "../../checks/rules/spec.js";
import { type Spool, withSpoolErrors } from "../../base/spool.js";
import { firstLine, quotePaths } from "../../duckdb/sql.js";

export interface ParquetSinkOptions extends Omit<RunTools, "store"> {
  /** Names the folder in messages and reports. */
  readonly target: string;
  /** The path as the spec wrote it: a checkout or a volume may move between attempts. */
  readonly uri: string;
  /** Opens a folder as a store: the output folder, or that of another run of the job. */
  readonly storeAt: (folder: string) => Store;
  /** May read and write in the store's local folder; closed with the sink. */
  readonly duckdb: DuckDbAccess & AsyncDisposable;
  readonly otherRunFolders: OtherFolders;
  /** The code of the error when the store cannot be reached, or something that another run needs is gone. */
  readonly failure: ErrorCode;
  /** Checks that a run could write here, without writing. Returns the checks that were not carried out, a line each. */
  readonly rehearse: (plan: Plan) => Promise<readonly string[]>;
  readonly close: () => Promise<void>;
}

/**
 * Opens a target of Parquet files in a store. Each span is one file, and its appearance under the final name is the
 * commit. The folder need not exist.
 */
export function openParquetSink(options: ParquetSinkOptions): Sink {
  const { folder, duckdb, otherRunFolders: folders } = options;
  const store = options.storeAt(folder);
  const tools: RunTools = { ...options, store };
  return {
    target: options.target,
    planTarget: { kind: "parquet", uri: options.uri },
    ledger: openLedger(store, folder),
    table: undefined,
    openKeyedRows: () => Promise.resolve(undefined),
    find: (base, number) =>
      number === undefined
        ? findPlan(store, folder, base)
        : readPlan(store, layoutOf(folder, numberedRunId(base, number))),
    published: (where) => findPublished(store, { folder, folders }, where),
    readProfile: (pinned) => readPinnedRun(store, folder, { ...pinned, failure: options.failure }),
    async readPublished({ run }) {
      const { place, rows, parts } = await findPublishedParts(store, folder, { ...run, failure: options.failure });
      return { format: "parquet", rows, ...options.storeAt(place).fetch(parts, "whole") };
    },
    history: (request) => findHistory(store, { folder, folders }, request),
    prune: (request) => pruneFolder(options.storeAt(request.place), request),
    rehearse: (plan) => options.rehearse(plan),
    makePlace: () => Promise.resolve(),
    create: (plan, held) =>
      held === undefined
        ? createPlan(store, plannedLayout(folder, plan), plan)
        : createInPlace(store, folder, plan, held),
    open: async (stored, how) => await openRun(tools, requireKept(stored), how),
    async [Symbol.asyncDispose]() {
      await duckdb[Symbol.asyncDispose]();
      await options.close();
    },
  };
}

/** What a run of Parquet files is opened with. */
export interface RunTools extends BeyondFolder {
  readonly store: Store;
  readonly folder: string;
  /** Writes and reads parts; it may use the store's local folder. */
  readonly duckdb: DuckDbAccess;
  /** Opens a DuckDB that reads parts, for `checks.unique`. */
  readonly openKeyDuckDb: OpenKeyDuckDb;
  readonly compression: Compression;
  /** Takes rows of spans that are not complete; DuckDB may write there. */
  readonly spool: Spool;
  /** Names this attempt: unique among all attempts on all machines. */
  readonly writer: string;
  /** Warns the user of what needs no action. */
  readonly warn: (message: string) => void;
}

async function openRun(tools: RunTools, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  const { store, folder, duckdb, writer } = tools;
  const layout = plannedLayout(folder, stored.plan);
  const run: RunFolder = {
    store,
    layout,
    stored,
    duckdb,
    how,
    publish: tools.publish,
    columnIds: tools.columnIds(stored.plan),
    check: planCheck(store, layout, stored.planId),
  };
  const { finished, parts } = await committedParts(run, () => true);
  if (finished) {
    // The attempt that wrote `_SUCCESS` may have died before it flushed the name. An archive has nothing to flush.
    await flush(store, folder).catch((error: unknown) => {
      if (!(error instanceof JobError) || error.code !== "PERMISSION") {
        throw error;
      }
    });
  }
  const known: CommittedSpans = { parts, own: new Map(), profiled: new Set(), profile: noRows };
  const journal = openAnswerFiles(store, layout, writer, hidden(run));
  return {
    ...stored,
    state: await readState(stored.plan, finished, (kind) => readDocument(store, layout, kind)),
    spans: known.parts,
    read: () => Promise.resolve({ ...store.fetch(partNames(run), "whole"), spans: () => spanFiles(run, known) }),
    rejects: () => readRejects(store, layout, known.parts),
    answers: () => journal,
    async refresh() {
      await readMore(run, known, (span) => !known.parts.has(span));
    },
    profile: () => committedProfile(run, known),
    countKeys: (columns) =>
      readCommitted(run, (names) => countKeysIn(tools.openKeyDuckDb, columns, store.fetch(names, "whole").groups)),
    async begin(attempt) {
      await prepare(tools, run, attempt.workers);
      return runWriter(tools, run, known, { writer, ...attempt });
    },
    async finish(attempt) {
      const decision =
        finished || !stored.plan.staged ? undefined : await readDocument(store, layout, decisionDocument);
      const isDiscarded = decision?.kind === "discarded";
      await (finished || isDiscarded ? clearUp(run, known, finished) : finishRun(run, known, attempt));
      return isDiscarded ? "discarded" : "published";
    },
  };
}

/** What may not be removed, as in an archive, stays: readers do not see it. */
async function clearUp(run: RunFolder, known: CommittedSpans, isPublished: boolean): Promise<void> {
  const { store, layout } = run;
  try {
    await clearRun(store, layout);
    await clearEarlierRuns(run, isPublished);
    const stale = isPublished ? await staleRejects(store, layout, known.parts) : [];
    if (stale.length > 0) {
      await store.remove(layout.rejects, stale); // an attempt that died had created them in a store of objects after the finish
    }
  } catch {
    // It stays.
  }
}

async function prepare({ store, folder, warn }: RunTools, run: RunFolder, workers: number): Promise<void> {
  await clearEarlierRuns(run, false); // late attempts of earlier runs may have left files
  const shared = await store.prepare(hidden(run));
  if (shared !== undefined && workers > 1) {
    throw new JobError("USAGE", `preparing ${folder}: ${shared}, and ${workers} workers would share it`, {
      hint: "two workers could publish one part there; use one worker, or another place for the output",
    });
  }
  if (shared !== undefined) {
    warn(`${folder}: ${shared}, so attempts at once could replace each other's parts; run only one worker at a time`);
  }
}

async function* partNames({ store, layout }: RunFolder): AsyncGenerator<string> {
  yield* (await listParts(store, layout)).values();
}

/** In order. A file lasts until the next one is requested. */
async function* spanFiles(run: RunFolder, known: CommittedSpans): AsyncGenerator<SpanFile> {
  const { store, layout } = run;
  const names = await listParts(store, layout);
  for (const [span, part] of [...known.parts].toSorted(([one], [other]) => one - other)) {
    const name = names.get(span);
    const profile = name && (await readProfiles(run, new Map([[span, name]]))).get(span);
    if (name === undefined || profile === undefined) {
      const what = name === undefined ? "there is no part" : "there is no profile in the part";
      throw new JobError("OUTPUT_DAMAGED", `reading ${layout.folder}: ${what} of span ${span}`, {
        hint: "something else removes files here; run the same command again",
      });
    }
    const rejects: RejectedRow[] = [];
    for await (const rejected of readRejects(store, layout, new Map([[span, part]]))) {
      rejects.push(rejected);
    }
    const { filtered, erased, maker } = part;
    for await (const [path = ""] of store.fetch([name], "whole").groups) {
      yield { span, path, rejects, filtered, erased, profile, maker };
    }
  }
}

function runWriter(
  tools: RunTools,
  run: RunFolder,
  known: CommittedSpans,
  maker: Omit<CommittedBy, "batchSize">,
): RunWriter {
  const { compression, spool } = tools;
  const pieces = new Map<number, readonly SpilledPiece[]>();
  return {
    unfit: () => Promise.resolve([]),
    async spill({ index }: Span, rows) {
      await spool.prepare();
      const piece = await withSpoolErrors(spool, () =>
        encodePiece({ ...tools, columnIds: run.columnIds }, rows, spool.newPath()),
      );
      pieces.set(index, [...(pieces.get(index) ?? []), piece]);
    },
    async commit(span: Span, output: SpanOutput) {
      const spilled = pieces.get(span.index) ?? [];
      const { outcome, part } = await commitSpan(run, { compression, maker, span, output, spilled });
      known.own.set(span.index, part);
      known.parts.set(span.index, keptOf(part));
      if (outcome === "committed" && !known.profiled.has(span.index)) {
        known.profiled.add(span.index);
        known.profile = mergeProfiles(known.profile, parseProfile(output.profile));
      }
      pieces.delete(span.index);
      for (const { path } of spilled) {
        await unlink(path).catch(() => undefined); // the spool's folder is removed when the target closes
      }
      return outcome;
    },
  };
}

async function readMore(run: RunFolder, known: CommittedSpans, wanted: (span: number) => boolean): Promise<boolean> {
  const { finished, parts } = await committedParts(run, wanted);
  for (const [span, part] of parts) {
    known.parts.set(span, part);
  }
  return finished;
}

async function committedProfile(run: RunFolder, known: CommittedSpans): Promise<SpanProfile> {
  const spans = spanCount(run.stored.plan);
  const texts =
    known.profiled.size === spans
      ? new Map<number, string>()
      : await partProfiles(run, (span) => !known.profiled.has(span));
  if (known.profiled.size + texts.size < spans) {
    await refuseStopped(run);
    const { folder, runId } = run.layout;
    throw damagedOutput(runId, `checking ${folder}: committed parts are gone, or have no profile`, "restore them");
  }

  return [...texts.values()].reduce((merged, text) => mergeProfiles(merged, parseProfile(text)), known.profile);
}

async function finishRun(run: RunFolder, known: CommittedSpans, attempt: AttemptJson | undefined): Promise<void> {
  const { store, layout, stored, check } = run;
  await check(); // first: parts of a later run would count as foreign ones
  await refuseForeign(store, layout);

  // Parts of other attempts are checked again: all that is published now must be whole now.
  if (await readMore(run, known, (span) => !known.own.has(span))) {
    // Another attempt finished the run, and may have died before it cleared up.
    await flush(store, layout.folder);
    await clearRun(store, layout);
    return;
  }
  const decision = stored.plan.staged ? await readDocument(store, layout, decisionDocument) : undefined;
  if (stored.plan.staged) {
    requireApproved(decision, layout.runId);
  }
  const committed = await committedProfile(run, known);
  const { rejected } = countSpans(known.parts);
  const profile = runProfileText(runProfileOf(stored.plan, { profile: committed, rejected, decision }));
  const baseline = decision?.asBaseline ?? true; // a run without a decision is part of what later runs are compared with
  try {
    await publishRun(run, { parts: known.own, committed: known.parts, profile, baseline, attempt });
  } catch (error) {
    if (!(error instanceof JobError && error.code === "OUTPUT_DAMAGED")) {
      throw error;
    }
    // Parts are gone: a later run was opened, or another attempt has published this one, and then removed what was staged.
    await check();
    if ((await checkFinished(store, layout, stored)) === undefined) {
      throw error;
    }
  }
}

/** Opens a DuckDB that may read parts, and that has a folder for data that does not fit in memory. */
export type OpenKeyDuckDb = () => Promise<Pick<DuckDb, "connect"> & AsyncDisposable>;

const shownKeys = 3;

/**
 * Counts how often keys repeat in parts. The count is exact, and memory is bounded. @param groups paths of parts on
 * this machine; the parts of a group must be readable until the next group is requested
 * @throws JobError MEMORY, DISK, OUTPUT_DAMAGED
 * @public so that tests count the keys of any files
 */
export async function countKeysIn(
  open: OpenKeyDuckDb,
  columns: readonly string[],
  groups: AsyncIterable<readonly string[]>,
): Promise<KeyCounts> {
  await using duckdb = await open();
  const connection = await duckdb.connect();
  try {
    const from = await loadKeys(connection, columns, groups);
    return from === undefined ? { repeated: 0, nulls: 0, examples: [] } : await countIn(connection, columns, from);
  } catch (error) {
    throw keyError(error);
  } finally {
    connection.closeSync();
  }
}

/** Returns the SQL name of their table; undefined: there is no group. Each is loaded before the next is requested. */
async function loadKeys(
  connection: DuckDBConnection,
  columns: readonly string[],
  groups: AsyncIterable<readonly string[]>,
): Promise<string | undefined> {
  let isFirst = true;
  for await (const paths of groups) {
    const rows = `SELECT ${columns.map(quoteName).join(", ")} FROM read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
    await connection.run(isFirst ? `CREATE TEMP TABLE keys AS ${rows}` : `INSERT INTO keys ${rows}`);
    isFirst = false;
  }
  return isFirst ? undefined : "keys";
}

async function countIn(connection: DuckDBConnection, columns: readonly string[], from: string): Promise<KeyCounts> {
  const names = columns.map(quoteName);
  const isNull = names.map((name) => `${name} IS NULL`).join(" OR ");
  const shown = `concat_ws(', ', ${names.map((name) => `left(${name}::VARCHAR, 60)`).join(", ")})`;
  const counted = await connection.runAndReadAll(
    `WITH counts AS (
       SELECT ${names.join(", ")}, count(*) AS copies FROM ${from} WHERE NOT (${isNull})
       GROUP BY ${names.join(", ")} HAVING count(*) > 1)
     SELECT coalesce(sum(copies - 1), 0)::DOUBLE, min(${shown}, ${shownKeys}) FROM counts`,
  );
  const [[repeated, examples] = []] = counted.getRowsJson();
  const [[nulls] = []] = (
    await connection.runAndReadAll(`SELECT count(*)::DOUBLE FROM ${from} WHERE ${isNull}`)
  ).getRows();
  return {
    repeated: Number(repeated),
    nulls: Number(nulls),
    examples: Array.isArray(examples) ? examples.map(String) : [],
  };
}

function keyError(error: unknown): unknown {
  const said = firstLine(messageOf(error));
  if (error instanceof JobError || !/^[A-Z][A-Za-z ]* Error: /.test(said)) {
    return error;
  }
  const doing = `counting the keys of the run: ${said}`;
  if (/^Out of Memory Error|^IO Error/.test(said)) {
    return new JobError(said.startsWith("IO") ? "DISK" : "MEMORY", doing, {
      hint: "checks.unique needs space for the keys of all rows: raise engine.memory, or set TMPDIR to a folder with more free space; then run the same command again",
      cause: error,
    });
  }
  return new JobError("OUTPUT_DAMAGED", doing, {
    hint: "a part was changed since it was written; see `infer-batch status`",
    cause: error,
  });
}
