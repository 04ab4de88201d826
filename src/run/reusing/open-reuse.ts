import { scoredColumns } from "../../binding/contract.js";
import { reuseColumn } from "../../binding/reuse-column.js";
import type { HashSeeds } from "../../packing/feature-hasher.js";
import type { PinnedRun, Plan } from "../../plan/plan.js";
import { spansOf } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { SpanRange } from "../../plan/worker-shares.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import type { Reuse } from "../../packing/row-reuse.js";
import type { RunSink } from "../../sink/port.js";
import { exitCodeOf, JobError, messageOf } from "../../util/errors.js";
import { mebibytes, storedShare } from "../../util/memory-budget.js";
import { type FilledTable, fillTable } from "./fill-table.js";

/** A run whose predictions may be those of an earlier one. */
export interface ReuseInput {
  readonly plan: Plan;
  readonly run: Pick<RunSink, "spans">;
  /** The spans whose rows may take them. */
  readonly share: SpanRange;
}

/**
 * Reads the rows of the pinned run into memory. If that run cannot be read, it warns, and all rows are scored; if not all
 * of its rows fit, it warns, and the rows of today that belong to the others are scored. undefined: the plan has no `reuse`.
 * @throws JobError USAGE where predictions cost money and not all rows fit
 */
export async function openReuse(context: JobContext, { plan, run, share }: ReuseInput): Promise<Reuse | undefined> {
  const { contract, reuseFrom } = plan;
  if (contract.reuse === undefined) {
    return undefined;
  }
  const seeds = seedsOf(context, plan);
  const timer = timerOf(context);
  const nothing = { contract, timer, hashing: { seeds } };
  const ranges = pendingRanges(spansOf(plan), run.spans, share);
  if (reuseFrom === undefined || reuseFrom === null || ranges.length === 0) {
    return nothing;
  }
  const sinceMs = timer.nowMs();
  const filled = await readPublished(context, plan, { run: reuseFrom, seeds });
  timer.took(timer.nowMs() - sinceMs);
  if (filled === undefined) {
    return nothing;
  }
  warnOfRest(context, plan, { run: reuseFrom, filled });
  const { table, predictions, keys } = filled;
  context.log.info(`reusing predictions of run ${reuseFrom.runId}: ${count(keys, "row")} with a key of their own`);
  return { contract, timer, predictions, hashing: { seeds, table } };
}

/** Reads the rows of a published run into memory; undefined: they cannot be read. */
async function readPublished(
  context: JobContext,
  plan: Plan,
  { run, seeds }: { readonly run: PinnedRun; readonly seeds: HashSeeds },
): Promise<FilledTable | undefined> {
  const { sink, openStoredRows, signal, log } = context;
  const { contract } = plan;
  const key = scoredColumns(contract).filter(({ name }) => contract.reuse?.key.includes(name) === true);
  const outputs = contract.outputs.map(({ column: name, type }) => ({ name, type }));
  try {
    const files = await sink.readPublished({ run, columns: [...key, ...outputs, reuseColumn] });
    await using reader = await openStoredRows({ files, key, outputs });
    return await fillTable(context, reader, { contract, seeds });
  } catch (error) {
    signal.throwIfAborted();
    // Asking again costs money: where memory, disk or the target may serve another attempt, this one ends.
    if (plan.request.prompt !== undefined && exitCodeOf(error) === 75) {
      throw error;
    }
    log.warn(`all rows are scored: reusing the predictions of run ${run.runId}: ${messageOf(error)}`);
    return undefined;
  }
}

/** Warns of rows that do not fit in memory. @throws JobError USAGE where predictions cost money */
function warnOfRest(
  { log }: JobContext,
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

/** Measures how long rows are compared. */
function timerOf({ record }: Pick<JobContext, "record">): Reuse["timer"] {
  return {
    nowMs: record.stages.nowMs,
    took(ms) {
      record.comparingMs += ms;
    },
  };
}

/** What the hashes of rows depend on besides their values, and how they are made: another number is another hash. */
const hashVersion = 2;

/**
 * What must be equal for predictions to be: the model, and how its inputs and outputs are bound. The digest of a language
 * model covers its prompt, sampling and response.
 */
function seedsOf({ sha256 }: Pick<JobContext, "sha256">, { model, contract }: Plan): HashSeeds {
  const { inputs, outputs, cast, missing } = contract;
  const { uri, version, tokenizers } = model;
  const served = version === undefined ? null : { uri, version };
  const digests = tokenizers?.map((tokenizer) => tokenizer.sha256) ?? [];
  const identity = { hash: hashVersion, model: model.sha256, served, digests, inputs, outputs, cast, missing };
  const seedOf = (of: keyof HashSeeds): Int32Array => {
    const digest = sha256(JSON.stringify({ ...identity, of }));
    return Int32Array.from({ length: 4 }, (_, word) => Number.parseInt(digest.slice(word * 8, word * 8 + 8), 16) | 0);
  };
  return { features: seedOf("features"), key: seedOf("key"), predictions: seedOf("predictions") };
}
