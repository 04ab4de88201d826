import { count } from "../base/shown-numbers.js";
import { type Contract, reuseColumn, scoredColumns } from "../models/binding/contract.js";
import { type Column, bytesPerValue, showType } from "../columns/types.js";
import type { FoundModel } from "../models/places/place.js";
import type { PinnedRun, Plan } from "./plan/plan.js";
import { type DatedRun, logicalDateOf, pinOf, runsOfSeries } from "./lifecycle/published-run.js";
import type { StoredRowsReader, OpenedJob, Job, Log } from "../flow/opened-job.js";
import { JobError, exitCodeOf, messageOf } from "../base/errors.js";
import {
  type HashSeeds,
  type HashTable,
  addStored,
  combineHashes,
  createKeyHasher,
  createStoredTable,
  tableRowBytes,
} from "../flow/pack/feature-hasher.js";
import { type SpanRange, spansOf } from "./plan/spans.js";
import { pendingRanges } from "../flow/read.js";
import type { Reuse } from "../flow/pack/row-reuse.js";
import type { RunSink, Sink } from "../targets/target.js";
import { mebibytes, storedShare, type MemoryBudget } from "../base/memory-budget.js";
import { createRowHasher, hashWords } from "../columns/row-hash.js";
import { createColumnBuilder } from "../columns/columns.js";
import { sha256Of } from "../base/sha256.js";

interface ReusePlanning {
  readonly contract: Contract;
  readonly resolved: FoundModel;
  /** `--new-run` without `--reuse`. */
  readonly scoresAll: boolean;
}

/**
 * Finds the published run whose predictions are reused: the one of the same params, which the new run takes the place of,
 * or the last of the series with an earlier date. Returns null if there is none, and undefined without `reuse`.
 * @throws JobError USAGE for a model without a version, CONTRACT for a key that is no scalar
 */
export async function planReuse(
  job: Job,
  sink: Sink,
  log: Log,
  { contract, resolved, scoresAll }: ReusePlanning,
): Promise<PinnedRun | null | undefined> {
  const { spec } = job;
  if (contract.reuse === undefined) {
    return undefined;
  }
  if (spec.model.server !== undefined && (resolved.version === undefined || resolved.version === "*")) {
    throw new JobError(
      "USAGE",
      `planning ${spec.name}: the server names no version of the model, so a changed model could not be detected`,
      { hint: "remove `reuse` from the spec, or serve the model with a version" },
    );
  }
  requireScalarKey(contract);
  if (scoresAll) {
    log.info("--new-run scores all rows; with --reuse, unchanged rows take their predictions from an earlier run");
    return null;
  }
  const ofJob = { job: spec.name, params: spec.params, dateParam: undefined };
  const own = runsOfSeries(await sink.published("here"), ofJob).at(-1);
  const found = own ?? (await lastOfSeries(job, sink, log));
  return found === undefined ? null : pinOf(found);
}

async function lastOfSeries({ spec, dateParam }: Job, sink: Sink, log: Log): Promise<DatedRun | undefined> {
  const date = logicalDateOf({ params: spec.params, dateParam: dateParam ?? null });
  if (dateParam === undefined || date === undefined) {
    log.warn(
      dateParam === undefined
        ? "no predictions can be reused: no param is a date, so runs have no order; add one to the spec: ds: { type: date }, or ds: ${today}"
        : `no predictions can be reused: param ${dateParam} is ${spec.params[dateParam] ?? ""}, not a date such as 2026-11-23`,
    );
    return undefined;
  }
  const series = { job: spec.name, params: spec.params, dateParam, date };
  const last = runsOfSeries(await sink.published("everywhere"), series).at(-1);
  if (last === undefined) {
    log.info("no predictions can be reused: no run with an earlier date is published");
  }
  return last;
}

function requireScalarKey({ passthrough, reuse }: Contract): void {
  for (const { column, source } of passthrough) {
    const { type } = source;
    if (reuse?.key.includes(column) === true && typeof type === "object" && type.kind !== "decimal") {
      throw new JobError("CONTRACT", `planning: column \`${column}\` of reuse.key is ${showType(type)}`, {
        hint: "a key is made of numbers, texts, dates and times; take fields of a struct by their paths",
      });
    }
  }
}

/**
 * Reads the rows of the pinned run into memory. If that run cannot be read, it warns, and all rows are scored; if not all
 * of its rows fit, it warns, and the rows of today that belong to the others are scored. undefined: the plan has no `reuse`.
 * @param share the spans whose rows may take them
 * @throws JobError USAGE where predictions cost money and not all rows fit
 */
export async function openReuse(
  opened: OpenedJob,
  { run, share }: { readonly run: RunSink; readonly share: SpanRange },
): Promise<Reuse | undefined> {
  const { reporter } = opened;
  const { plan, spans } = run;
  const { contract, reuseFrom } = plan;
  if (contract.reuse === undefined) {
    return undefined;
  }
  const seeds = seedsOf(plan);
  const { record } = reporter;
  const timer = {
    nowMs: record.stages.nowMs,
    took(ms: number) {
      record.comparingMs += ms;
    },
  };
  const nothing = { contract, timer, hashing: { seeds } };
  const ranges = pendingRanges(spansOf(plan), spans, share);
  if (reuseFrom === undefined || reuseFrom === null || ranges.length === 0) {
    return nothing;
  }
  const sinceMs = timer.nowMs();
  const filled = await readPublished(opened, plan, { run: reuseFrom, seeds });
  timer.took(timer.nowMs() - sinceMs);
  if (filled === undefined) {
    return nothing;
  }
  warnOfRest(reporter.log, plan, { run: reuseFrom, filled });
  const { table, predictions, keys } = filled;
  reporter.log.info(`reusing predictions of run ${reuseFrom.runId}: ${count(keys, "row")} with a key of their own`);
  return { contract, timer, predictions, hashing: { seeds, table } };
}

/** undefined: they cannot be read. */
async function readPublished(
  opened: OpenedJob,
  plan: Plan,
  { run, seeds }: { readonly run: PinnedRun; readonly seeds: HashSeeds },
): Promise<FilledTable | undefined> {
  const { sink, attempt, reporter, queries, memory } = opened;
  const { contract } = plan;
  const key = scoredColumns(contract).filter(({ name }) => contract.reuse?.key.includes(name) === true);
  const outputs = contract.outputs.map(({ column: name, type }) => ({ name, type }));
  try {
    const files = await sink.readPublished({ run, columns: [...key, ...outputs, reuseColumn] });
    await using reader = await queries.openStoredRows({ files, key, outputs });
    return await fillTable(attempt.signal, memory, reader, { contract, seeds });
  } catch (error) {
    attempt.signal.throwIfAborted();
    // Asking again costs money: where memory, disk or the target may serve another attempt, this one ends.
    if (plan.request.prompt !== undefined && exitCodeOf(error) === 75) {
      throw error;
    }
    reporter.log.warn(`all rows are scored: reusing the predictions of run ${run.runId}: ${messageOf(error)}`);
    return undefined;
  }
}

function warnOfRest(
  log: Log,
  { request }: Plan,
  { run: { runId }, filled: { left, wholeBytes } }: { readonly run: PinnedRun; readonly filled: FilledTable },
): void {
  if (left === 0) {
    return;
  }
  const text = `reusing the predictions of run ${runId}: ${count(left, "row")} of it ${left === 1 ? "does" : "do"} not fit in memory`;
  const memory = `engine.memory: ${Math.ceil((wholeBytes * storedShare) / mebibytes(1))}MiB`;
  if (request.prompt !== undefined) {
    throw new JobError("USAGE", `${text}, and asking for their answers again would cost money`, {
      hint: `set ${memory} or more in the spec, and run the same command again`,
    });
  }
  log.warn(`${text}, and what belongs to them is scored; with ${memory}, all rows fit`);
}

/** What the hashes of rows depend on besides their values, and how they are made: another number is another hash. */
const hashVersion = 2;

/**
 * What must be equal for predictions to be: the model, and how its inputs and outputs are bound. The digest of a language
 * model covers its prompt, sampling and response.
 */
function seedsOf({ model, contract }: Plan): HashSeeds {
  const { inputs, outputs, cast, missing } = contract;
  const { uri, version, tokenizers } = model;
  const served = version === undefined ? null : { uri, version };
  const digests = tokenizers?.map((tokenizer) => tokenizer.sha256) ?? [];
  const identity = { hash: hashVersion, model: model.sha256, served, digests, inputs, outputs, cast, missing };
  const seedOf = (of: keyof HashSeeds): Int32Array => {
    const digest = sha256Of(JSON.stringify({ ...identity, of }));
    return Int32Array.from({ length: 4 }, (_, word) => Number.parseInt(digest.slice(word * 8, word * 8 + 8), 16) | 0);
  };
  return { features: seedOf("features"), key: seedOf("key"), predictions: seedOf("predictions") };
}

interface FilledTable {
  readonly table: HashTable;
  /** The predictions of its rows, in the order of the contract's outputs. */
  readonly predictions: readonly Column[];
  /** Rows whose key is there once. */
  readonly keys: number;
  /** Rows that were not read, because the table was full. */
  readonly left: number;
  /** What all rows would take, in bytes, if the others are like those that were read. */
  readonly wholeBytes: number;
}

/** As many as fit into their share of the memory. */
async function fillTable(
  signal: AbortSignal,
  { storedBytes }: MemoryBudget,
  reader: StoredRowsReader,
  { contract: { outputs }, seeds }: { readonly contract: Pick<Contract, "outputs">; readonly seeds: HashSeeds },
): Promise<FilledTable> {
  // As long as texts have the usual length; they are measured as they come.
  const rowBytes = outputs.reduce((sum, { type }) => sum + bytesPerValue(type), tableRowBytes);
  const most = Math.min(reader.rowCount, Math.floor(storedBytes / rowBytes));
  const table = createStoredTable(most);
  const builders = outputs.map(({ type }) => createColumnBuilder(type, most));
  const predictionBytes = (): number => builders.reduce((sum, { bytes }) => sum + bytes, 0);
  const hashKeys = createKeyHasher(seeds.key);
  const predicted = createRowHasher(seeds.predictions, false);
  let [rows, keys] = [0, 0];
  let isFull = false;
  for await (const piece of reader.all()) {
    signal.throwIfAborted();
    const taken = Math.min(piece.rowCount, most - rows);
    const hashes = combineHashes(piece.hashes, predicted.columns(piece.predictions, piece.rowCount));
    keys += addStored(table, rows, {
      keys: hashKeys(piece.keys, piece.rowCount).subarray(0, taken * hashWords),
      rows: hashes.subarray(0, taken * hashWords),
    });
    for (const [index, builder] of builders.entries()) {
      builder.append(piece.predictions[index] as Column, 0, taken);
    }
    rows += taken;
    isFull = taken < piece.rowCount || most * tableRowBytes + predictionBytes() > storedBytes;
    if (isFull) {
      break;
    }
  }
  return {
    table,
    keys,
    predictions: builders.map((builder) => builder.finish()),
    left: isFull ? reader.rowCount - rows : 0,
    wholeBytes: reader.rowCount * Math.max(rowBytes, tableRowBytes + predictionBytes() / Math.max(1, rows)),
  };
}
