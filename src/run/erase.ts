import { outputColumns } from "../binding/contract.js";
import type { ColumnType, OutputRows } from "../columnar/types.js";
import { groupRuns, planOf, type RunGroup } from "../jobs/prune-choice.js";
import { numberedRunId, splitRunId } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { spanAt, spanCount } from "../plan/spans.js";
import {
  type ErasedRows,
  type KeyList,
  nothingErased,
  profileWithoutRows,
  verdictWithoutRows,
} from "../publish/erasure.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, RunWriter, Sink, SpanFile, StoredPlan } from "../sink/port.js";
import { JobError } from "../util/errors.js";
import { attemptFacts } from "./attempt.js";
import { countCommitted } from "./conclude.js";
import { isPublished } from "./resume.js";

/** Finds the rows of some keys in Parquet files, and reads the others. */
export interface RowFinder extends AsyncDisposable {
  /** Numbers of rows, ascending. */
  rowsIn(path: string): Promise<readonly number[]>;
  /** Indexes of rejected rows, ascending. @param texts the carried columns of each */
  rejected(texts: readonly Readonly<Record<string, string | null>>[]): Promise<readonly number[]>;
  /** Yields the other rows of a file in pieces, at least one. */
  rowsWithout(
    path: string,
    request: { readonly columns: readonly KeyType[]; readonly without: readonly number[] },
  ): AsyncIterable<OutputRows>;
}

interface KeyType {
  readonly name: string;
  readonly type: ColumnType;
}

/** @param folder the folder of the files */
export type OpenRowFinder = (folder: string, key: readonly KeyType[]) => Promise<RowFinder>;

/** What became of the runs of some params, or of a table. */
export interface ErasedRun extends ErasedRows {
  /** The latest run; undefined: it is about a table. */
  readonly runId: RunId | undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly place: string;
  /** Why nothing was erased though rows may be there; undefined: all rows of the keys are gone. */
  readonly retained: string | undefined;
}

export interface EraseRequest {
  readonly keys: KeyList;
  readonly openFinder: OpenRowFinder;
  /** Takes the indexes of keys that are found. */
  readonly found: Set<number>;
  readonly dryRun: boolean;
  /** Opens the job with other params, whose target is another folder. */
  readonly openJob: (params: Readonly<Record<string, string>>) => Promise<JobContext & AsyncDisposable>;
}

/** More runs than any target has. */
const everyRun = 1_000_000;

/** Erases the rows of some keys from the output of all runs of a job. Safe to repeat after a kill at any step. */
export async function eraseRows(context: JobContext, request: EraseRequest): Promise<readonly ErasedRun[]> {
  const { sink, decidedBy } = context;
  const { keys, dryRun, found } = request;
  if (sink.erase !== undefined) {
    const tables = await sink.erase({ keys, dryRun, found, by: decidedBy() });
    return tables.map(({ name, ...counts }) => ({
      runId: undefined,
      params: {},
      place: name,
      ...counts,
      retained: undefined,
    }));
  }
  return await eraseFromFiles(context, request);
}

/**
 * Erases the rows of some keys from the files of all runs of a job. A run that has such rows is replaced by a run of
 * its other rows, as a new run replaces it: readers see the one or the other.
 */
async function eraseFromFiles(context: JobContext, request: EraseRequest): Promise<readonly ErasedRun[]> {
  const runs = (await context.sink.history?.({ job: context.spec.name, last: everyRun })) ?? [];
  const erased: ErasedRun[] = [];
  for (const group of groupRuns(runs)) {
    context.signal.throwIfAborted();
    const { runId, place } = group.latest;
    const params = planOf(group)?.params ?? {};
    const outcome = await orRetained(() => eraseGroup(group, request));
    erased.push({ runId, place, params, ...outcome });
  }
  return erased;
}

type GroupOutcome = ErasedRows & { readonly retained: string | undefined };

const retained = (why: string): GroupOutcome => ({ ...nothingErased, retained: why });

/** What keeps the rows of one folder does not keep those of others from being erased. */
async function orRetained(work: () => Promise<GroupOutcome>): Promise<GroupOutcome> {
  try {
    return await work();
  } catch (error) {
    const isOwn =
      error instanceof JobError &&
      ["OUTPUT_FOREIGN", "OUTPUT_DAMAGED", "PLAN_CHANGED", "SPEC_INVALID"].includes(error.code);
    if (isOwn) {
      return retained(error.message);
    }
    throw error;
  }
}

async function eraseGroup(group: RunGroup, request: EraseRequest): Promise<GroupOutcome> {
  const plan = planOf(group);
  if (plan === undefined) {
    return retained("its plan is damaged");
  }
  await using context = await request.openJob(plan.params);
  const { sink } = context;
  const { base } = splitRunId(plan.runId);
  const latest = await sink.find(base);
  if (latest === undefined) {
    return retained("the spec names another folder for these params");
  }
  if (latest.pruned !== undefined) {
    await (request.dryRun ? undefined : sink.stripVerdicts?.(base));
    return { ...nothingErased, retained: undefined };
  }
  const source = await sourceOf(context, latest, request.dryRun);
  if (typeof source === "string") {
    return retained(source);
  }
  return source === undefined
    ? { ...nothingErased, retained: undefined }
    : { ...(await eraseRun(context, source, request)), retained: undefined };
}

/** The published run whose rows readers see. */
interface Source {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  /** The latest run of the params. */
  readonly latest: RunId;
}

/** Finds the run to erase rows from; undefined: none has rows. Returns why that is not possible as a text. */
async function sourceOf(
  context: JobContext,
  latest: StoredPlan,
  dryRun: boolean,
): Promise<Source | string | undefined> {
  const { sink } = context;
  const { plan } = latest;
  const run = await sink.open(latest);
  if (isPublished(run)) {
    return { stored: latest, run, latest: plan.runId };
  }
  if (plan.erasure !== undefined) {
    if (countCommitted(run) === spanCount(plan)) {
      // It may have begun to take the place of the run before it.
      if (!dryRun) {
        const writer = await run.begin(attemptFacts(context, "none"));
        await finishErasure(context, { stored: latest, run, writer });
      }
      return { stored: latest, run: dryRun ? run : await sink.open(latest), latest: plan.runId };
    }
    return await earlierRun(sink, plan.erasure.of as RunId, plan.runId);
  }
  switch (run.state.kind) {
    case "discarded":
      return await publishedBefore(sink, plan.runId);
    case "held":
      return `its checks hold it; approve or discard it first: ${context.command(plan.params, { verb: "approve", runId: plan.runId })}`;
    default:
      return `it is not finished; to finish it: ${context.command(plan.params)}`;
  }
}

async function earlierRun(sink: Sink, runId: RunId, latest: RunId): Promise<Source | undefined> {
  const stored = await sink.stored?.(runId);
  const run = stored === undefined || stored.pruned !== undefined ? undefined : await sink.open(stored);
  return stored !== undefined && run !== undefined && isPublished(run) ? { stored, run, latest } : undefined;
}

/** Finds the published run before a discarded one. */
async function publishedBefore(sink: Sink, runId: RunId): Promise<Source | undefined> {
  const { base, number } = splitRunId(runId);
  for (let earlier = number - 1; earlier > 0; earlier -= 1) {
    const found = await earlierRun(sink, numberedRunId(base, earlier), runId);
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}

async function eraseRun(context: JobContext, source: Source, request: EraseRequest): Promise<ErasedRows> {
  const { sink } = context;
  const { stored, run, latest } = source;
  const { folder } = run.parts?.() ?? { folder: "" };
  await using finder = await request.openFinder(folder, keyTypes(stored.plan, request.keys));
  const found = await countRows(run, finder);
  const { base, number } = splitRunId(latest);
  if (found.rows + found.rejects === 0) {
    await (request.dryRun ? undefined : sink.stripVerdicts?.(base)); // an erasure before this one may have been killed
    return found;
  }
  if (request.dryRun) {
    return found;
  }
  const { decidedBy, dateMs } = context;
  const erasure = {
    of: stored.plan.runId,
    at: new Date(dateMs()).toISOString(),
    by: decidedBy(),
    writer: context.writer,
  };
  const plan: Plan = { ...stored.plan, version: 2, runId: numberedRunId(base, number + 1), erasure };
  const next = await sink.create(plan);
  if (JSON.stringify(next.plan.erasure) !== JSON.stringify(erasure)) {
    throw new JobError(
      "PLAN_CHANGED",
      `erasing rows of run ${stored.plan.runId}: run ${plan.runId} was planned meanwhile`,
    );
  }
  const copy = await sink.open(next);
  const writer = await copy.begin(attemptFacts(context, "none"));
  await copyRows(context, { stored: next, writer, from: run, finder });
  await finishErasure(context, { stored: next, run: copy, writer });
  await sink.stripVerdicts?.(base);
  return found;
}

/** The key columns with their types in the output of a run. @throws JobError USAGE for a column that it has not */
function keyTypes({ contract, runId }: Plan, { columns }: KeyList): KeyType[] {
  const all = outputColumns(contract);
  return columns.map((name) => {
    const found = all.find((column) => column.name === name);
    if (found === undefined) {
      throw new JobError("USAGE", `erasing rows of run ${runId}: its output has no column ${name}`, {
        hint: `name the columns of the key with --key; the output has ${all.map((column) => column.name).join(", ")}`,
      });
    }
    return { name, type: found.type };
  });
}

async function countRows(run: RunSink, finder: RowFinder): Promise<ErasedRows> {
  let [rows, rejects] = [0, 0];
  for await (const file of run.spanFiles?.() ?? []) {
    rows += (await finder.rowsIn(file.path)).length;
    rejects += (await finder.rejected(file.rejects.map(({ columns }) => columns))).length;
  }
  return { rows, rejects };
}

/** Commits the spans of a run without the rows of the keys, as the spans of another run. */
async function copyRows(
  context: JobContext,
  tools: {
    readonly stored: StoredPlan;
    readonly writer: RunWriter;
    readonly from: RunSink;
    readonly finder: RowFinder;
  },
): Promise<void> {
  const { stored, writer, from, finder } = tools;
  const { plan } = stored;
  const columns = outputColumns(plan.contract).map(({ name, type }) => ({ name, type }));
  for await (const file of from.spanFiles?.() ?? []) {
    context.signal.throwIfAborted();
    const span = spanAt(plan, file.span);
    const without = await finder.rowsIn(file.path);
    const rejected = new Set(await finder.rejected(file.rejects.map((row) => row.columns)));
    const rejects = file.rejects.filter((_, index) => !rejected.has(index));
    let last: OutputRows | undefined;
    for await (const rows of finder.rowsWithout(file.path, { columns, without })) {
      await (last === undefined ? undefined : writer.spill?.(span, last));
      last = rows;
    }
    if (last === undefined) {
      throw new Error(`no rows came of ${file.path}`);
    }
    const erased = file.erased + without.length + rejected.size;
    await writer.commit(span, { ...facts(file), rows: last, rejects, ...(erased === 0 ? {} : { erased }) });
  }
}

function facts({ filtered, profile, maker }: SpanFile): {
  readonly filtered: number;
  readonly batchSize: number;
  readonly provider: string;
  readonly profile: string | undefined;
} {
  const { batchSize, provider } = maker;
  return { filtered, batchSize, provider, profile: profile === undefined ? undefined : profileWithoutRows(profile) };
}

/** Gives an erasure the verdict and the decision of the run that its rows are of, and publishes it in its place. */
async function finishErasure(
  { sink }: JobContext,
  { stored: { plan }, run, writer }: { readonly stored: StoredPlan; readonly run: RunSink; readonly writer: RunWriter },
): Promise<void> {
  const { of, at } = plan.erasure ?? { of: "", at: null };
  const original = await sink.stored?.(of as RunId);
  if (original?.verdict !== undefined) {
    await run.judge(verdictWithoutRows(original.verdict));
  }
  if (plan.staged && original?.decision !== undefined) {
    await run.decide(original.decision);
  }
  await writer.finish({ started_at: at, erased_from: of });
}
