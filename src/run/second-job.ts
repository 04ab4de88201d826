import { modelNames } from "../checks/agreement.js";
import { predictedColumns, rowNumberColumn } from "../models/binding/contract.js";
import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import type { RunRows } from "./lifecycle/span-record.js";
import type { OpenedJob } from "../flow/opened-job.js";
import { comparisonDocument, verdictDocument } from "../stores/ledger.js";
import type { RunSink } from "../targets/target.js";
import { challengerKeys } from "../job/jobfile/model-spec.js";
import { usualKey } from "../job/jobfile/job-spec.js";
import { JobError, messageOf, reworded } from "../base/errors.js";
import type { Source } from "../sources/source.js";
import { isWhole } from "./attempt.js";
import { compareColumns } from "./two-sets.js";
import { plannedFiles } from "./input.js";

/** Opens the job that scores the same rows with the challenger, into a place beside the output. */
export async function openSecondJob(opened: OpenedJob): Promise<OpenedJob & AsyncDisposable> {
  const second = await opened.openSecondJob();
  return {
    ...opened,
    ...second,
    job: { ...opened.job, ...second.job },
    attempt: { ...opened.attempt, newRun: false },
  };
}

/** Runs `work` for a challenger and rewrites its errors: keys such as `model.path` become `challenger.path`. */
export async function forSecond<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error;
    }
    const { message, hint } = error;
    throw reworded(error, { message: challengerKeys(message), hint: hint && challengerKeys(hint) });
  }
}

/**
 * Has the challenger score the rows of a run: of this worker's share, and once all spans of the run are committed, whatever
 * is left. Then stores how both agree, unless that is stored. A run that is judged without it stays without. Whatever goes
 * wrong ends no run.
 */
export async function scoreWithSecond(
  opened: OpenedJob,
  run: RunSink,
  runJob: (second: OpenedJob) => Promise<unknown>,
): Promise<void> {
  const { sink } = opened;
  const { log } = opened.reporter;
  const { plan } = run;
  const { runId } = plan;
  if (opened.job.spec.challenger === undefined || run.state.kind !== "unfinished") {
    return;
  }
  try {
    const known = await sink.ledger.read(runId, comparisonDocument);
    const verdict = plan.checks === null ? undefined : await sink.ledger.read(runId, verdictDocument);
    if (known !== undefined || verdict !== undefined) {
      return;
    }
    await using second = await openSecondJob(opened);
    const steal = isWhole(run);
    log.info("scoring the same rows with the challenger");
    await forSecond(() => scoreRows({ ...second, attempt: { ...second.attempt, steal } }, plan, runJob));
    await (steal ? storeResult(opened, run, second) : undefined);
  } catch (error) {
    opened.attempt.signal.throwIfAborted();
    if ((await sink.ledger.read(runId, comparisonDocument).catch(() => undefined)) !== undefined) {
      return; // another worker has compared them, and has moved what this one was reading
    }
    log.warn(`challenger: not whole, so that the predictions are not compared: ${messageOf(error)}`);
  }
}

/**
 * Carries out the challenger's run; a new one where the last one was of other rows, of a model that has changed since, or
 * is damaged.
 */
async function scoreRows(
  second: OpenedJob,
  plan: Plan,
  runJob: (second: OpenedJob) => Promise<unknown>,
): Promise<void> {
  const { sink, attempt } = second;
  const job = { ...second.job, spec: { ...second.job.spec, commit_rows: plan.commitRows } };
  const { source } = second.input;
  // The files of the table that the run reads, at its version, whatever is the newest by now.
  const list: Source["list"] = async (patterns) => plannedFiles(await source.list(patterns, plan.input), plan);
  const ofPlan: Source = {
    ...source,
    get readAhead() {
      return source.readAhead;
    },
    list,
  };
  const input = { ...second.input, source: ofPlan };
  const run = async (newRun: boolean): Promise<unknown> =>
    await runJob({ ...second, job, input, attempt: { ...attempt, newRun } });

  try {
    const stored = await sink.find(job.base);
    const last = stored?.plan;
    let isOutdated = last !== undefined;
    if (last !== undefined && stored?.pruned === undefined && last.erasure === undefined && hasSameRows(last, plan)) {
      // A run that is complete asks neither a registry nor a server.
      const { model, version } = await second.models.resolveModel();
      isOutdated = model.sha256 !== last.model.sha256 || version !== last.model.version;
    }
    await run(isOutdated);
  } catch (error) {
    if (!(error instanceof JobError) || error.exitCode !== 66) {
      throw error;
    }
    await run(true);
  }
}

function hasSameRows({ input: one, ...planned }: Plan, { input: other, ...plan }: Plan): boolean {
  return planned.commitRows === plan.commitRows && JSON.stringify(one.shards) === JSON.stringify(other.shards);
}

/** Opens the challenger's run of a plan's rows, all of whose spans are committed. @throws Error if there is none */
export async function openSecondRun({ job, sink }: Pick<OpenedJob, "job" | "sink">, plan: Plan): Promise<RunSink> {
  const stored = await sink.find(job.base);
  if (stored === undefined || stored.pruned !== undefined || !hasSameRows(stored.plan, plan)) {
    throw new Error(`${sink.target} has no run of these rows`);
  }
  const run = await sink.open(stored);
  if (!isWhole(run)) {
    throw new Error(`${sink.target} has ${run.spans.size} of ${spanCount(stored.plan)} spans`);
  }
  return run;
}

const mostShown = 3;

/** By row where rows are in files, by key where they are in tables. */
async function storeResult({ job, sink, queries }: OpenedJob, champion: RunSink, second: OpenedJob): Promise<void> {
  const { spec } = job;
  const challenger = await openSecondRun(second, champion.plan);
  const copied = champion.plan.contract.passthrough.map(({ column }) => column);
  const usual = usualKey(spec).filter((name) => copied.includes(name));
  const key = sink.table === undefined ? [rowNumberColumn.name] : usual;
  if (key.length === 0) {
    throw new Error("no column of the table tells one row from another: name one in output.columns");
  }

  const [a, b] = [await rowsOf(champion, key), await rowsOf(challenger, key)];
  await using joiner = await queries.openRowJoiner([a.files.folder, b.files.folder]);
  const missed = await joiner.loadRuns(a, b);
  const shown = (usual.length > 0 ? usual : copied).slice(0, mostShown);
  const agreement = await compareColumns(
    joiner,
    [champion, challenger].map(({ plan }) => predictedColumns(plan.contract)),
    {
      key,
      shown,
      tolerance: spec.challenger?.tolerance ?? 0,
      names: modelNames,
    },
  );
  const { uri: model, sha256, version = null } = challenger.plan.model;
  const about = { model, sha256, version, place: second.sink.target };
  const rows = { ...agreement.rows, repeated: [] }; // names no row
  await sink.ledger.create(champion, comparisonDocument, { ...about, missed, ...agreement, rows });
}

async function rowsOf(run: RunSink, key: readonly string[]): Promise<RunRows> {
  const { commitRows, input } = run.plan;
  return { files: await run.read(key), rejected: rejectedRows(run), rowCount: input.rows, commitRows };
}

async function* rejectedRows(run: RunSink): AsyncGenerator<{ readonly row: number; readonly reason: string }> {
  let start = 0;
  const starts = new Map<string, number>();
  for (const shard of run.plan.input.shards) {
    starts.set(shard.uri, start);
    start += shard.rows;
  }
  for await (const { shard, row, reason } of run.rejects()) {
    yield { row: (starts.get(shard) ?? 0) + row, reason };
  }
}
