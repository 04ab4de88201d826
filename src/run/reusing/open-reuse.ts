import { scoredColumns } from "../../binding/contract.js";
import { reuseColumn } from "../../binding/reuse-column.js";
import type { HashSeeds } from "../../packing/feature-hasher.js";
import type { PinnedRun, Plan } from "../../plan/plan.js";
import { spansOf } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { JobContext, StoredRowsReader } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import type { Reuse } from "../../scoring/reuse.js";
import { exitCodeOf, messageOf } from "../../util/errors.js";
import { fillTable, fitsInTable } from "./fill-table.js";
import { joinKeys } from "./join-keys.js";
import type { ReuseInput, RowsToFind } from "./rows-to-find.js";

/**
 * Prepares the reuse of predictions: reads the rows of the pinned run, or as many of them as the pending rows of a share
 * need. If that run cannot be read, it warns, and all rows are scored. undefined: the plan has no `reuse`.
 */
export async function openReuse(
  context: JobContext,
  input: ReuseInput,
): Promise<(Reuse & AsyncDisposable) | undefined> {
  const { plan, run, share } = input;
  const { contract, reuseFrom } = plan;
  if (contract.reuse === undefined) {
    return undefined;
  }
  const seeds = seedsOf(context, plan);
  const timer = timerOf(context);
  const nothing = { contract, timer, hashing: { seeds }, [Symbol.asyncDispose]: () => Promise.resolve() };
  const ranges = pendingRanges(spansOf(plan), run.committed, share);
  if (reuseFrom === undefined || reuseFrom === null || ranges.length === 0) {
    return nothing;
  }
  const scoreAll = (error: unknown): void => {
    context.signal.throwIfAborted();
    // Asking again costs money: where memory, disk or the target may serve another attempt, this one ends.
    if (plan.request.prompt !== undefined && exitCodeOf(error) === 75) {
      throw error;
    }
    context.log.warn(`all rows are scored: reusing the predictions of run ${reuseFrom.runId}: ${messageOf(error)}`);
  };
  const sinceMs = timer.nowMs();
  try {
    const found = await findRows(context, { ...input, ranges, seeds }, { run: reuseFrom, onUnreadable: scoreAll });
    timer.took(timer.nowMs() - sinceMs);
    return found ?? nothing;
  } catch (error) {
    scoreAll(error);
    return nothing;
  }
}

/** Measures how long rows are compared. */
export function timerOf({ record }: Pick<JobContext, "record">): Reuse["timer"] {
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
export function seedsOf({ sha256 }: Pick<JobContext, "sha256">, { model, contract }: Plan): HashSeeds {
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

interface Published {
  readonly run: PinnedRun;
  /** Called once if no more of its rows can be read. */
  readonly onUnreadable: (error: unknown) => void;
}

/** Reads the published rows into memory, or joins them; undefined: the target reads no rows of other runs. */
async function findRows(
  context: JobContext,
  toFind: RowsToFind,
  published: Published,
): Promise<(Reuse & AsyncDisposable) | undefined> {
  const { plan, seeds } = toFind;
  const { contract } = plan;
  const reader = await openPublished(context, plan, published.run);
  if (reader === undefined) {
    return undefined;
  }
  if (!fitsInTable(context.memory, contract, reader.rowCount)) {
    return await joinRows(context, toFind, published, reader);
  }
  const filled = await fillTable(context, reader, { contract, seeds }).finally(() => reader[Symbol.asyncDispose]());
  if (filled !== undefined) {
    const { table, predictions, keys } = filled;
    logFound(context, published, keys);
    const timer = timerOf(context);
    return { contract, timer, predictions, hashing: { seeds, table }, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const again = await openPublished(context, plan, published.run);
  return again && (await joinRows(context, toFind, published, again));
}

/** Joins rows that do not fit in memory, and closes their reader with what it returns. */
async function joinRows(
  context: JobContext,
  toFind: RowsToFind,
  published: Published,
  reader: StoredRowsReader,
): Promise<Reuse & AsyncDisposable> {
  try {
    const { cursor, rowCount } = await joinKeys(context, toFind, reader, published.onUnreadable);
    logFound(context, published, rowCount);
    const close = async (): Promise<void> => {
      await cursor.close();
      await reader[Symbol.asyncDispose]();
    };
    const { contract } = toFind.plan;
    return {
      contract,
      timer: timerOf(context),
      hashing: { seeds: toFind.seeds },
      find: cursor.find,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await reader[Symbol.asyncDispose]();
    throw error;
  }
}

function logFound({ log }: JobContext, { run }: Published, rows: number): void {
  log.info(`reusing predictions of run ${run.runId}: ${count(rows, "row")} with a key of their own`);
}

/** Opens the rows of a published run, and says how many there are. */
async function openPublished(
  { sink, openStoredRows }: JobContext,
  { contract }: Plan,
  run: PinnedRun,
): Promise<StoredRowsReader | undefined> {
  const key = scoredColumns(contract).filter(({ name }) => contract.reuse?.key.includes(name) === true);
  const outputs = contract.outputs.map(({ column: name, type }) => ({ name, type }));
  const files = await sink.readPublished?.({ run, columns: [...key, ...outputs, reuseColumn] });
  return files && (await openStoredRows({ files, key, outputs }));
}
