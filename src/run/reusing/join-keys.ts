import { type Contract, type Projection } from "../../binding/contract.js";
import type { Column } from "../../columnar/types.js";
import { createRowHasher } from "../../columnar/row-hash.js";
import { combineHashes } from "../../packing/feature-hasher.js";
import type { ComparedRows } from "../../packing/row-reuse.js";
import { spansOf } from "../../plan/spans.js";
import type { JobContext, StoredRowsReader } from "../../scoring/context.js";
import { readRanges } from "../../scoring/read-ranges.js";
import { openSliceReader } from "../../scoring/workers/slice-reader.js";
import type { RowsToFind } from "./rows-to-find.js";
import { openStoredCursor, type StoredCursor } from "./stored-cursor.js";

/** Stored rows that do not fit in memory, joined with the pending rows. */
export interface JoinedRows {
  readonly cursor: StoredCursor;
  /** Stored rows whose key is there once. */
  readonly rowCount: number;
}

/**
 * Joins stored rows with the pending rows by their keys, before these are scored.
 * @param onUnreadable called once if no more of what was joined can be read
 */
export async function joinKeys(
  context: JobContext,
  { plan, decoder, source, ranges, seeds }: RowsToFind,
  reader: StoredRowsReader,
  onUnreadable: (error: unknown) => void,
): Promise<JoinedRows> {
  const join = await reader.join();
  for await (const { rows, keys } of readKeys(context, { plan, decoder, source, ranges })) {
    context.signal.throwIfAborted();
    await join.add(rows, keys);
  }
  const predicted = createRowHasher(seeds.predictions, false);
  const found = async function* (): AsyncGenerator<ComparedRows> {
    for await (const { rows, rowCount, hashes, predictions } of join.found()) {
      yield { rows, predictions, hashes: combineHashes(hashes, predicted.columns(predictions, rowCount)) };
    }
  };
  return { cursor: openStoredCursor(plan.contract.outputs, found(), onUnreadable), rowCount: join.rowCount };
}

interface KeyRows {
  /** Numbers of rows of the run. */
  readonly rows: Float64Array;
  readonly keys: readonly Column[];
}

async function* readKeys(
  context: JobContext,
  { plan, decoder, source, ranges }: Omit<RowsToFind, "seeds">,
): AsyncGenerator<KeyRows> {
  await using reader = openSliceReader({ decoder, ...context.decodeWorkers, memory: context.memory });
  const projection = keyProjection(plan.contract);
  const uniform = plan.input.uniform === true;
  const feed = { source, decoder, reader, windowsAhead: 1, spans: spansOf(plan), projection, uniform };
  for await (const { rowStart, batch } of readRanges(feed, ranges)) {
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
