import { outputColumns } from "../../binding/contract.js";
import type { ColumnType, OutputRows } from "../../columnar/types.js";
import { nextRunId, splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { spanAt } from "../../plan/spans.js";
import { withoutRows } from "../../publish/run-comparison.js";
import { type ErasedRows, type KeyList, verdictWithoutRows } from "../../publish/erasure.js";
import type { JobContext } from "../../scoring/context.js";
import { comparisonDocument, decisionDocument, stripVerdicts, verdictDocument } from "../../sink/ledger.js";
import type { RunSink, RunWriter, StoredPlan } from "../../sink/port.js";
import type { SpanFile, StoredSpans } from "../../publish/published-files.js";
import { type Decision, decisionText, supersededBy } from "../../publish/decision.js";
import { JobError } from "../../util/errors.js";
import { attemptFacts } from "../attempt.js";

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
export interface Source {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  /** The latest run of the params. */
  readonly latest: RunId;
  /** Whether the latest run is an erasure that is not finished: it is superseded when the next run is planned. */
  readonly unfinished: boolean;
}

/** What is to be erased, and how its rows are found. */
export interface CopyRequest {
  readonly keys: KeyList;
  readonly openFinder: OpenRowFinder;
  /** Only count the rows. */
  readonly dryRun: boolean;
}

const again = "run the same command again";

/** Replaces a run that has rows of the keys by a run of its other rows. Counts the rows. */
export async function eraseRun(context: JobContext, source: Source, request: CopyRequest): Promise<ErasedRows> {
  const { sink } = context;
  const { stored, run, latest } = source;
  const files = await run.read([]);
  if (!("spans" in files)) {
    throw new Error("rows are erased from a table in place");
  }
  await using finder = await request.openFinder(files.folder, keyTypes(stored.plan, request.keys));
  const found = await countRows(files, finder);
  if (found.rows + found.rejects === 0) {
    await (request.dryRun ? undefined : stripVerdicts(sink.ledger, latest)); // an erasure before this one may have been killed
    return found;
  }
  if (request.dryRun) {
    return found;
  }
  const { actingUser, dateMs } = context;
  const erasure = {
    of: stored.plan.runId,
    at: new Date(dateMs()).toISOString(),
    by: actingUser(),
    writer: context.writer,
  };
  // Staged, so that its publication is decided on: the erasure of another process may supersede this one.
  const plan: Plan = { ...stored.plan, runId: nextRunId(latest), staged: true, erasure };
  const next = await createInPlace(context, source, plan);
  if (JSON.stringify(next.plan.erasure) !== JSON.stringify(erasure)) {
    throw new JobError(
      "PLAN_CHANGED",
      `erasing rows of run ${stored.plan.runId}: run ${plan.runId} was planned meanwhile`,
      { hint: again },
    );
  }
  const copy = await sink.open(next);
  const writer = await copy.begin(attemptFacts(context, "none"));
  await copyRows(context, { stored: next, writer, from: files, finder });
  await finishErasure(context, { stored: next, run: copy, writer });
  return found;
}

/**
 * Stores the plan of an erasure, which supersedes the one that was not finished when the source was found: that one never
 * replaces the source. @throws JobError PLAN_CHANGED if it is being published
 */
async function createInPlace(
  { sink }: JobContext,
  { stored, latest, unfinished }: Source,
  plan: Plan,
): Promise<StoredPlan> {
  if (!unfinished || plan.erasure === undefined) {
    return await sink.create(plan);
  }
  const decision = supersededBy(plan.runId, plan.erasure);
  const next = await sink.create(plan, { runId: latest, decision });
  if (next.plan.runId === latest) {
    const found = `run ${latest}, of another erasure, is replacing it`;
    throw new JobError("PLAN_CHANGED", `erasing rows of run ${stored.plan.runId}: ${found}`, { hint: again });
  }
  return next;
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

async function countRows(files: StoredSpans, finder: RowFinder): Promise<ErasedRows> {
  let [rows, rejects] = [0, 0];
  for await (const file of files.spans()) {
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
    readonly from: StoredSpans;
    readonly finder: RowFinder;
  },
): Promise<void> {
  const { stored, writer, from, finder } = tools;
  const { plan } = stored;
  const columns = outputColumns(plan.contract).map(({ name, type }) => ({ name, type }));
  for await (const file of from.spans()) {
    context.signal.throwIfAborted();
    const span = spanAt(plan, file.span);
    const without = await finder.rowsIn(file.path);
    const rejected = new Set(await finder.rejected(file.rejects.map((row) => row.columns)));
    const rejects = file.rejects.filter((_, index) => !rejected.has(index));
    let last: OutputRows | undefined;
    for await (const rows of finder.rowsWithout(file.path, { columns, without })) {
      await (last === undefined ? undefined : writer.spill(span, last));
      last = rows;
    }
    if (last === undefined) {
      throw new Error(`no rows came of ${file.path}`);
    }
    const erased = (file.erased ?? 0) + without.length + rejected.size;
    await writer.commit(span, { ...facts(file), rows: last, rejects, ...(erased === 0 ? {} : { erased }) });
  }
}

function facts({ filtered, profile, maker }: SpanFile): {
  readonly filtered: number;
  readonly batchSize: number;
  readonly provider: string;
  readonly profile: string;
} {
  const { batchSize, provider } = maker;
  return { filtered, batchSize, provider, profile };
}

/**
 * Publishes an erasure in place of the run that its rows are of, with that run's verdict and decision.
 * @throws JobError PLAN_CHANGED if it was superseded or discarded
 */
export async function finishErasure(
  context: JobContext,
  { stored, run, writer }: { readonly stored: StoredPlan; readonly run: RunSink; readonly writer: RunWriter },
): Promise<void> {
  const { plan } = stored;
  await approveErasure(context, { plan, run });
  await stripVerdicts(context.sink.ledger, plan.runId);
  await writer.finish({ started_at: plan.erasure?.at ?? null, erased_from: plan.erasure?.of ?? null });
}

/**
 * Approves an erasure whose spans are all committed, and copies the verdict of the run that its rows are of. From then on
 * no other erasure supersedes it. Returns the stored decision.
 * @throws JobError PLAN_CHANGED if it was superseded or discarded
 */
export async function approveErasure(
  { sink }: Pick<JobContext, "sink">,
  { plan: { runId, erasure }, run }: { readonly plan: Plan; readonly run: RunSink },
): Promise<Decision> {
  if (erasure === undefined) {
    throw new Error(`run ${runId} is no erasure`);
  }
  const { of, at, by } = erasure;
  const verdict = await sink.ledger.read(of as RunId, verdictDocument);
  if (verdict !== undefined) {
    await run.create(verdictDocument, verdictWithoutRows(verdict));
  }
  const comparison = await sink.ledger.read(of as RunId, comparisonDocument);
  if (comparison !== undefined) {
    await run.create(comparisonDocument, withoutRows(comparison));
  }
  const decided = await sink.ledger.read(of as RunId, decisionDocument);
  const { base, number } = splitRunId(of as RunId);
  const asBaseline = (await sink.find(base, number))?.plan.staged === false; // a staged run has a decision, which says so
  const own: Decision = { kind: "approved", by, at, reason: `without the erased rows of ${of}`, asBaseline };
  const decision = await run.create(decisionDocument, decided ?? own);
  if (decision.kind !== "approved") {
    throw new JobError("PLAN_CHANGED", `publishing run ${runId}: it was ${decisionText(decision, true)}`, {
      hint: "run the same infer-batch erase again",
    });
  }
  return decision;
}
