import { type Contract, type Projection, scoredColumns } from "../binding/contract.js";
import { reuseColumn } from "../binding/reuse-column.js";
import { createRowHasher } from "../columnar/row-hash.js";
import type { Column } from "../columnar/types.js";
import type { Decoder } from "../formats/port.js";
import type { PinnedRun, Plan } from "../plan/plan.js";
import type { SpanRange } from "../plan/share.js";
import { spansOf } from "../plan/spans.js";
import { count } from "../report/report.js";
import type { JobContext, StoredRowsJoin } from "../scoring/context.js";
import { feedRows, pendingRanges } from "../scoring/feed.js";
import type { Reuse } from "../scoring/reuse.js";
import { openStoredCursor } from "../scoring/stored-cursor.js";
import { openSliceReader } from "../scoring/workers/slice-reader.js";
import type { RunSink } from "../sink/port.js";
import type { Source } from "../storage/port.js";
import { exitCodeOf, messageOf } from "../util/errors.js";

export interface ReuseInput {
  readonly plan: Plan;
  readonly run: Pick<RunSink, "committed">;
  readonly decoder: Decoder;
  readonly source: Source;
  /** The spans whose rows are looked up. */
  readonly share: SpanRange;
}

/**
 * Prepares the reuse of predictions: looks up the pending rows of a share among those of the pinned run. If that run
 * cannot be read, it warns, and all rows are scored. undefined: the plan has no `reuse`.
 */
export async function openReuse(
  context: JobContext,
  input: ReuseInput,
): Promise<(Reuse & AsyncDisposable) | undefined> {
  const { plan } = input;
  const { reuse } = plan.contract;
  if (reuse === undefined) {
    return undefined;
  }
  const tools = {
    hasher: createRowHasher(reuseSeed(context, plan), plan.contract.missing === "nan"),
    contract: plan.contract,
    key: reuse.key,
  };
  const nothing = { ...tools, [Symbol.asyncDispose]: () => Promise.resolve() };
  const { reuseFrom } = plan;
  if (reuseFrom === undefined || reuseFrom === null) {
    return nothing;
  }
  const tell = (error: unknown): void => {
    context.signal.throwIfAborted();
    context.log.warn(`all rows are scored: reusing the predictions of run ${reuseFrom.runId}: ${messageOf(error)}`);
  };
  try {
    const join = await lookUp(context, input, reuseFrom);
    if (join === undefined) {
      return nothing;
    }
    const cursor = openStoredCursor(plan.contract.outputs, join.found(), tell);
    return {
      ...tools,
      find: cursor.find,
      async [Symbol.asyncDispose]() {
        await cursor.close();
        await join[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    // Asking again costs money: if the target is unavailable, another attempt waits for it.
    if (plan.request.prompt !== undefined && exitCodeOf(error) === 75) {
      throw error;
    }
    tell(error);
    return nothing;
  }
}

/**
 * What must be equal for predictions to be: the model, and how its inputs and outputs are bound. Names the hash, too. The
 * digest of a language model covers its prompt, sampling and response.
 */
export function reuseSeed({ sha256 }: Pick<JobContext, "sha256">, { model, contract }: Plan): Int32Array {
  const { inputs, outputs, cast, missing } = contract;
  const { uri, version, tokenizers } = model;
  const served = version === undefined ? null : { uri, version };
  const digests = tokenizers?.map((tokenizer) => tokenizer.sha256) ?? [];
  const identity = { hash: 1, model: model.sha256, served, digests, inputs, outputs, cast, missing };
  const digest = sha256(JSON.stringify(identity));
  return Int32Array.from({ length: 4 }, (_, word) => Number.parseInt(digest.slice(word * 8, word * 8 + 8), 16) | 0);
}

/** Opens the stored rows, and adds the keys of the pending rows; undefined: the target reads no rows of other runs. */
async function lookUp(context: JobContext, input: ReuseInput, run: PinnedRun): Promise<StoredRowsJoin | undefined> {
  const { plan, share } = input;
  const { contract } = plan;
  const typed = scoredColumns(contract);
  const key = typed.filter(({ name }) => contract.reuse?.key.includes(name) === true);
  const outputs = contract.outputs.map(({ column: name, type }) => ({ name, type }));
  const ranges = pendingRanges(spansOf(plan), input.run.committed, share);
  if (ranges.length === 0) {
    return undefined;
  }
  const files = await context.sink.readPublished?.({ run, columns: [...key, ...outputs, reuseColumn] });
  if (files === undefined) {
    return undefined;
  }
  const join = await context.openStoredRows({ files, key, outputs });
  try {
    for await (const { rows, keys } of readKeys(context, input, ranges)) {
      context.signal.throwIfAborted();
      await join.add(rows, keys);
    }
  } catch (error) {
    await join[Symbol.asyncDispose]();
    throw error;
  }
  context.log.info(`reusing predictions of run ${run.runId}: ${count(join.rowCount, "row")} with a key of their own`);
  return join;
}

interface KeyRows {
  /** Numbers of rows of the run. */
  readonly rows: Float64Array;
  readonly keys: readonly Column[];
}

async function* readKeys(
  context: JobContext,
  { plan, decoder, source }: ReuseInput,
  ranges: ReturnType<typeof pendingRanges>,
): AsyncGenerator<KeyRows> {
  await using reader = openSliceReader({ decoder, ...context.decodeWorkers, memory: context.memory });
  const projection = keyProjection(plan.contract);
  const uniform = plan.input.uniform === true;
  const feed = { source, decoder, reader, windowsAhead: 1, spans: spansOf(plan), projection, uniform };
  for await (const { rowStart, batch } of feedRows(feed, ranges)) {
    const rows = new Float64Array(batch.rowCount);
    for (let row = 0; row < rows.length; row += 1) {
      rows[row] = rowStart + (batch.selection?.indices[row] ?? row);
    }
    yield { rows, keys: batch.carried };
  }
}

/** What a decoder reads for keys alone. Rows that `input.where` leaves out are looked up in vain. */
function keyProjection({ passthrough, expressions, cast, missing, reuse }: Contract): Projection {
  const keys = passthrough.filter(({ column }) => reuse?.key.includes(column) === true);
  const computed = new Set(keys.flatMap(({ source }) => (source.computed === true ? [source.path[0]] : [])));
  const list = expressions?.list.filter(({ kind, name }) => kind === "column" && computed.has(name)) ?? [];
  return {
    inputs: [],
    passthrough: keys,
    expressions: expressions === null || list.length === 0 ? null : { ...expressions, list },
    cast,
    missing,
  };
}
