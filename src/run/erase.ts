import type { JobSpec } from "../job/jobfile/job-spec.js";
import { type RunGroup, groupRuns, overParams, planOf } from "./series/prune-choice.js";
import { nextRunId, numberedRunId, paramTexts, runIdOf, splitRunId } from "./plan/identity.js";
import type { Plan, RunId } from "./plan/plan.js";
import { type OtherRuns, everyRun } from "./lifecycle/recorded-run.js";
import { type ErasedRows, type KeyList, type TableErasure, nothingErased } from "./lifecycle/erasure.js";
import type { OpenedJob, Job, Attempt, Log } from "../flow/opened-job.js";
import { decisionDocument, stripRows } from "../stores/ledger.js";
import type { RunSink, RunWriter, Sink, StoredPlan } from "../targets/target.js";
import { JobError, assertNever, orError } from "../base/errors.js";
import { openSecondJob } from "./second-job.js";
import { finishErasure } from "./conclude.js";
import { outputColumns } from "../models/binding/contract.js";
import type { ColumnType, OutputRows } from "../columns/types.js";
import { spanAt } from "./plan/spans.js";
import type { StoredSpans } from "./lifecycle/span-record.js";
import { eraseStep, supersededBy } from "./lifecycle/lifecycle.js";
import { attemptFacts } from "./attempt.js";
import { newRunCommand } from "./hints.js";
import { latestRun } from "./resume.js";
import { sha256Of } from "../base/sha256.js";
import { shellWord } from "../base/texts.js";

/** What became of the runs of some params, or of a table. */
export interface ErasedRun extends ErasedRows {
  /** The latest run; undefined: it is about a table. */
  readonly runId: RunId | undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly place: string;
  /** Why nothing was erased though rows may be there; undefined: all rows of the keys are gone. */
  readonly retained: string | undefined;
}

interface EraseRequest extends CopyRequest {
  readonly found: Set<number>;
  /**
   * Returns the params to give, so that the spec names `table` (`schema.table`), which a run with `params` wrote.
   * undefined: with these params the spec names another table.
   */
  readonly paramsOfTable: (table: string, params: Plan["params"]) => Plan["params"] | undefined;
  /** Opens the job with other params, whose target is another folder. */
  readonly openJob: (params: Readonly<Record<string, string>>) => Promise<OpenedJob & AsyncDisposable>;
}

/**
 * Erases the rows of some keys from the output of all runs of a job, and from the predictions of its
 * second model. Safe to repeat after a kill at any step.
 */
export async function eraseRows(opened: OpenedJob, request: EraseRequest): Promise<readonly ErasedRun[]> {
  const { job, sink, attempt, reporter } = opened;
  const others = { jobs: new Set<string>(), tables: new Map<string, Plan["params"]>() };
  const everything = { job: job.spec.name, last: everyRun, complete: true, others } as const;
  const groups = groupRuns(await sink.history(everything));
  const { paramsOfTable } = request;
  const { length: runsFound } = groups;
  warnOfUnsearched(job.spec, sink, reporter.log, { runsFound, others, paramsOfTable });
  const published =
    (await eraseFromTables(job, sink, attempt, request)) ?? (await eraseFromFiles(attempt.signal, groups, request));
  await using second = await openSecondJob(opened);
  if (second.sink.table === undefined) {
    return [...published, ...(await eraseSeconds(groups, request))];
  }
  const isThere = (await second.sink.history({ job: second.job.spec.name, last: 1 })).length > 0;
  const predictions = isThere
    ? await eraseFromTables(second.job, second.sink, attempt, request, overParams(groups))
    : undefined;
  return [...published, ...(predictions ?? [])];
}

/** undefined: the rows are in files. */
async function eraseFromTables(
  { spec, command }: Job,
  sink: Sink,
  { actingUser }: Attempt,
  { keys, dryRun, found }: EraseRequest,
  isOver?: TableErasure["isOver"],
): Promise<readonly ErasedRun[] | undefined> {
  const tables = await sink.table?.erase({
    keys,
    dryRun,
    found,
    by: actingUser(),
    job: spec.name,
    isOver,
    command,
  });
  return tables?.map(({ name, rows, rejects }) => ({
    runId: undefined,
    params: {},
    place: name,
    rows,
    rejects,
    retained: undefined,
  }));
}

/**
 * Erases rows from the files of all runs. A run that has such rows is replaced by a run of its other rows, as a new run
 * replaces it: readers see the one or the other.
 */
async function eraseFromFiles(
  signal: AbortSignal,
  groups: readonly RunGroup[],
  request: EraseRequest,
): Promise<readonly ErasedRun[]> {
  const erased: ErasedRun[] = [];
  for (const group of groups) {
    signal.throwIfAborted();
    const { runId, place } = group.latest;
    const params = planOf(group)?.params ?? {};
    const outcome = await orRetained(() => eraseGroup(group, request));
    erased.push({ runId, place, params, ...outcome });
  }
  return erased;
}

async function eraseSeconds(groups: readonly RunGroup[], request: EraseRequest): Promise<readonly ErasedRun[]> {
  const erased: ErasedRun[] = [];
  for (const group of groups) {
    const plan = planOf(group);
    if (plan === undefined) {
      continue;
    }
    await using opened = await request.openJob(plan.params);
    await using second = await openSecondJob(opened);
    const { job, sink } = second;
    const runId = runIdOf(job.spec.name, plan.params, sha256Of);
    const outcome = await orRetained(async () => {
      const latest = await sink.find(runId);
      if (latest === undefined) {
        return undefined;
      }
      // An erasure completes itself.
      const isOpen = latest.pruned === undefined && latest.plan.erasure === undefined;
      const isAbandoned =
        isOpen && group.latest.status === "published" && (await sink.open(latest)).state.kind === "unfinished";
      return isAbandoned
        ? retained(`they are not complete, and no run completes them: remove the folder ${sink.target}`)
        : await eraserOf(second, request)(latest);
    });
    if (outcome !== undefined) {
      erased.push({ runId, params: plan.params, place: sink.target, ...outcome });
    }
  }
  return erased;
}

type GroupOutcome = ErasedRows & { readonly retained: string | undefined };

const retained = (why: string): GroupOutcome => ({ ...nothingErased, retained: why });

const ofOnePlace: ReadonlySet<string> = new Set([
  "OUTPUT_FOREIGN",
  "OUTPUT_DAMAGED",
  "PLAN_CHANGED",
  "DISCARDED",
  "SPEC_INVALID",
]);

/** What keeps the rows of one folder does not keep those of others from being erased. */
async function orRetained<T>(work: () => Promise<T>): Promise<T | GroupOutcome> {
  const outcome = await orError(work, ({ code }) => ofOnePlace.has(code));
  if (!(outcome instanceof JobError)) {
    return outcome;
  }
  const { message, hint } = outcome;
  return retained(hint === undefined ? message : `${message}: ${hint}`);
}

async function eraseGroup(group: RunGroup, request: EraseRequest): Promise<GroupOutcome> {
  const plan = planOf(group);
  if (plan === undefined) {
    return retained("its plan is damaged");
  }
  await using opened = await request.openJob(plan.params);
  const latest = await opened.sink.find(splitRunId(plan.runId).base);
  if (latest === undefined) {
    return retained("the spec names another folder for these params");
  }
  return await eraserOf(opened, request)(latest);
}

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

/** The published run whose rows readers see. */
interface Source {
  readonly run: RunSink;
  readonly latest: RunId;
  /** Whether the latest run is an erasure that is not finished: it is superseded when the next run is planned. */
  readonly unfinished: boolean;
}

interface CopyRequest {
  readonly keys: KeyList;
  readonly openFinder: OpenRowFinder;
  readonly dryRun: boolean;
}

const again = "run the same command again";

function overtaken({ run }: Source, found: string, cause?: unknown): JobError {
  return new JobError("PLAN_CHANGED", `erasing rows of run ${run.plan.runId}: ${found}`, { hint: again, cause });
}

type EraseLatest = (latest: StoredPlan) => Promise<GroupOutcome>;

function eraserOf({ job, sink, attempt }: OpenedJob, { keys, openFinder, dryRun }: CopyRequest): EraseLatest {
  async function eraseLatest(latest: StoredPlan): Promise<GroupOutcome> {
    if (latest.pruned !== undefined) {
      await (dryRun ? undefined : stripRows(sink.ledger, latest.pruned.tombstone));
      return { ...nothingErased, retained: undefined };
    }
    const source = await findSource(latest);
    if (typeof source === "string") {
      return retained(source);
    }
    if (source === undefined) {
      await (dryRun ? undefined : stripRows(sink.ledger, latest.plan.runId)); // of runs that were discarded
      return { ...nothingErased, retained: undefined };
    }
    return {
      ...(await unlessReplaced(latest, source, () => eraseRun(source))),
      retained: undefined,
    };
  }

  /**
   * Runs `work` on the rows of `source`. @throws JobError PLAN_CHANGED if another run took its place, whose files are gone then:
   * one that was planned meanwhile, or the unfinished erasure that was the latest run, and that another process publishes
   */
  async function unlessReplaced<T>(latest: StoredPlan, source: Source, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      attempt.signal.throwIfAborted();
      const { runId } = latest.plan;
      const now = await sink.find(splitRunId(runId).base);
      if (now === undefined || now.plan.erasure?.writer === attempt.writer) {
        throw error; // the run that this attempt has planned
      }
      const isLatest = now.plan.runId === runId;
      // Its decision comes before the first file of the source is replaced.
      const decision = await sink.ledger.read(runId, decisionDocument);
      const isReplacing = source.run.plan.runId !== runId && isLatest && decision?.kind === "approved";
      if (isLatest && !isReplacing) {
        throw error;
      }
      const replaced = `run ${runId}, of another erasure, has replaced it`;
      throw overtaken(source, isReplacing ? replaced : `run ${now.plan.runId} was planned meanwhile`, error);
    }
  }

  async function eraseRun(source: Source): Promise<ErasedRows> {
    const { run, latest, unfinished } = source;
    const files = await run.read([]);
    if (!("spans" in files)) {
      throw new Error("rows are erased from a table in place");
    }
    await using finder = await openFinder(files.folder, keyTypes(run.plan, keys));
    let [rows, rejects] = [0, 0];
    for await (const file of files.spans()) {
      rows += (await finder.rowsIn(file.path)).length;
      rejects += (await finder.rejected(file.rejects.map(({ columns }) => columns))).length;
    }
    if (dryRun) {
      return { rows, rejects };
    }
    if (rows + rejects === 0) {
      await stripRows(sink.ledger, latest); // an erasure before this one may have been killed
      return { rows, rejects };
    }

    const erasure = {
      of: run.plan.runId,
      at: new Date(attempt.dateMs()).toISOString(),
      by: attempt.actingUser(),
      writer: attempt.writer,
    };
    // Staged, so that its publication is decided on: the erasure of another process may supersede this one.
    const plan: Plan = { ...run.plan, runId: nextRunId(latest), staged: true, erasure };
    // It supersedes the one that was not finished when the source was found: that one never replaces the source.
    const insteadOf = unfinished ? { runId: latest, decision: supersededBy(plan.runId, erasure) } : undefined;
    const next = await sink.create(plan, insteadOf);
    if (unfinished && next.plan.runId === latest) {
      throw overtaken(source, `run ${latest}, of another erasure, is replacing it`);
    }
    if (JSON.stringify(next.plan.erasure) !== JSON.stringify(erasure)) {
      throw overtaken(source, `run ${plan.runId} was planned meanwhile`);
    }
    const copy = await sink.open(next);
    const writer = await copy.begin(attemptFacts(job.spec, attempt, "none"));
    await copyRows(attempt.signal, { plan: copy.plan, writer, from: files, finder });
    await finishErasure(sink, copy);
    return { rows, rejects };
  }

  /** undefined: no run has rows of the keys; a text: why it is not possible. */
  async function findSource(stored: StoredPlan): Promise<Source | string | undefined> {
    const { runId, params, erasure } = stored.plan;
    const run = await sink.open(stored);
    const own = { run, latest: runId, unfinished: false };
    const step = eraseStep(latestRun(run));
    switch (step) {
      case "erase":
        await (dryRun ? undefined : run.finish()); // an erasure may have been killed after it was published
        return own;
      case "finish":
        // An erasure whose spans are all committed may have begun to take the place of the run before it.
        if (dryRun) {
          return own;
        }
        await run.begin(attemptFacts(job.spec, attempt, "none"));
        await finishErasure(sink, run);
        return { ...own, run: await sink.open(stored) };
      case "refuse":
        return run.state.kind === "held"
          ? `its checks hold it; approve or discard it first: ${job.command(params, { verb: "approve", runId })}`
          : `it is not finished; to finish it: ${job.command(params)}`;
      case "erase earlier": {
        const before = await publishedBefore(runId);
        if (erasure === undefined) {
          return before;
        }
        return typeof before === "object"
          ? { ...before, unfinished: true }
          : (before ?? lostText(erasure.of, stored.plan));
      }
      default:
        return assertNever(step);
    }
  }

  /** The run that readers have while the latest is discarded or an unfinished erasure; a text: why none can be read. */
  async function publishedBefore(latest: RunId): Promise<Source | string | undefined> {
    const { base, number: last } = splitRunId(latest);
    let lost: string | undefined;
    for (let number = last - 1; number > 0; number -= 1) {
      const runId = numberedRunId(base, number);
      const stored = await sink.find(base, number);
      if (stored === undefined || stored.pruned !== undefined) {
        continue; // it is gone
      }
      if (stored.plan.staged && (await sink.ledger.read(runId, decisionDocument))?.kind !== "approved") {
        continue; // it was never published
      }
      try {
        const run = await sink.open(stored);
        if (run.state.kind === "published") {
          return { run, latest, unfinished: false };
        }
      } catch (error) {
        if (!(error instanceof JobError) || !["PLAN_CHANGED", "OUTPUT_DAMAGED"].includes(error.code)) {
          throw error;
        }
        lost ??= lostText(runId, stored.plan);
      }
    }
    return lost;
  }

  function lostText(before: string, plan: Plan): string {
    return `the rows of run ${before} before it cannot be read: that run is damaged, is not finished, or is being replaced; ${again}, or score again: ${newRunCommand(job, plan)}`;
  }

  return eraseLatest;
}

function keyTypes({ contract, runId }: Plan, { columns }: KeyList): KeyType[] {
  const all = outputColumns(contract);
  return columns.map((name) => {
    const column = all.find((output) => output.name === name);
    if (column === undefined) {
      throw new JobError("USAGE", `erasing rows of run ${runId}: its output has no column ${name}`, {
        hint: `name the columns of the key with --key; the output has ${all.map((output) => output.name).join(", ")}`,
      });
    }
    return { name, type: column.type };
  });
}

interface CopyTools {
  readonly plan: Plan;
  readonly writer: RunWriter;
  readonly from: StoredSpans;
  readonly finder: RowFinder;
}

async function copyRows(signal: AbortSignal, { plan, writer, from, finder }: CopyTools): Promise<void> {
  const columns = outputColumns(plan.contract).map(({ name, type }) => ({ name, type }));
  for await (const { span: index, path, filtered, profile, maker, ...file } of from.spans()) {
    signal.throwIfAborted();
    const span = spanAt(plan, index);
    const without = await finder.rowsIn(path);
    const rejected = new Set(await finder.rejected(file.rejects.map((row) => row.columns)));
    const rejects = file.rejects.filter((_, row) => !rejected.has(row));
    let last: OutputRows | undefined;
    for await (const rows of finder.rowsWithout(path, { columns, without })) {
      await (last === undefined ? undefined : writer.spill(span, last));
      last = rows;
    }
    if (last === undefined) {
      throw new Error(`no rows came of ${path}`);
    }
    const erased = (file.erased ?? 0) + without.length + rejected.size;
    const { batchSize, provider } = maker;
    const facts = { filtered, profile, batchSize, provider };
    await writer.commit(span, { ...facts, rows: last, rejects, ...(erased === 0 ? {} : { erased }) });
  }
}

const shownLimit = 3;

interface Searched {
  readonly runsFound: number;
  readonly others: OtherRuns;
  readonly paramsOfTable: (table: string, params: Plan["params"]) => Plan["params"] | undefined;
}

/**
 * Warns of places that an erasure does not search: runs under an earlier name of the job, folder or table, and other
 * tables if the table name depends on params.
 */
function warnOfUnsearched(
  spec: JobSpec,
  sink: Sink,
  log: Log,
  { runsFound, others: { jobs, tables }, paramsOfTable }: Searched,
): void {
  const { name } = spec;
  const isTable = sink.table !== undefined; // a table is searched as a whole, with the rows of all jobs
  const others = isTable ? [] : [...jobs];
  if (others.length > 0) {
    log.warn(
      `some folders that the spec names have runs of job ${shown(others)}, which are not searched; if this job had that name before, erase again with this in the spec: name: ${others[0]}`,
    );
  }
  warnOfTables(spec, log, tables, paramsOfTable);
  if (runsFound === 0 && jobs.size === 0 && tables.size === 0) {
    const schema = spec.output.postgres?.control_schema;
    const [found, keys] = isTable
      ? [`no run in control_schema ${schema} is known for ${sink.target}`, "output.postgres.table or control_schema"]
      : [`no run of job ${name} is in ${sink.target}, nor in its folders of other params`, "output.parquet.path"];
    log.warn(`${found}; if the name of the job or ${keys} was changed, erase again with the old value in the spec`);
  }
}

function warnOfTables(
  { name, output }: JobSpec,
  log: Log,
  tables: OtherRuns["tables"],
  paramsOfTable: Searched["paramsOfTable"],
): void {
  const found = [...tables].map(([table, params]) => ({ table, params: paramsOfTable(table, params) }));
  const named = found.filter(({ params }) => params !== undefined);
  const renamed = found.filter(({ params }) => params === undefined).map(({ table }) => table);
  if (named.length > 0) {
    const places = named.map(
      ({ table, params = {} }) =>
        `${table} (${paramTexts(params)
          .map((text) => `--param ${shellWord(text)}`)
          .join(" ")})`,
    );
    log.warn(
      `erasing rows: only ${output.postgres?.table} is searched; the spec also writes to ${shown(places)}; run erase for each of them`,
    );
  }
  if (renamed.length > 0) {
    log.warn(
      `runs of job ${name} also wrote to ${shown(renamed)}, which is not searched; to erase there, erase again with this in the spec: output.postgres.table: ${renamed[0]}`,
    );
  }
}

function shown(names: readonly string[]): string {
  const more = names.length - shownLimit;
  return `${names.slice(0, shownLimit).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
