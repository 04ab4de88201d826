import { quoteText } from "../../base/sql.js";
import {
  type DuckDBConnection,
  openDuckDbLazily,
  type ConnectionPool,
  createConnectionPool,
} from "../../duckdb/instance.js";
import { awaitedLater, settled } from "../../base/promises.js";
import {
  type Column,
  type BytesColumn,
  type DecodedInput,
  layoutOfType,
  type ListColumn,
  type Matrix,
  type RecordBatch,
} from "../../columns/types.js";
import { readColumn, type ChunkTexts, openTexts, readScalars, readMatrix } from "../../duckdb/vectors.js";
import type { SliceRequest } from "../format.js";
import type { DuckDBDataChunk } from "@duckdb/node-api";
import { type DecodedBinding, decodedInputs, type Projection } from "../../models/binding/contract.js";
import { selectRows, statesWithout } from "../../flow/pack/select-rows.js";
import { tensorElement } from "../../columns/tensor.js";
import { rowsWithin, sliceColumn } from "../../columns/columns.js";
import { JobError } from "../../base/errors.js";
import type { MemoryBudget } from "../../base/memory-budget.js";

export interface DuckDbReader extends AsyncDisposable {
  readonly pool: ConnectionPool;
}

export interface DuckDbReaderOptions {
  readonly threads: number;
  /** The folders that shards may be read from; nothing else can be. */
  readonly folders: readonly string[];
  readonly timezone: string;
  /** Bytes that DuckDB may hold; default: what it thinks right. */
  readonly memoryBytes?: number | undefined;
}

/** The slice that is read and the one after it. */
const streams = 2;

/** DuckDB is loaded when it is asked something: where shards are simple, that may be never. */
export function openDuckDbReader({ threads, folders, timezone, memoryBytes }: DuckDbReaderOptions): DuckDbReader {
  const duckdb = openDuckDbLazily({
    threads,
    memoryBytes,
    allowed: { folders },
    settings: { TimeZone: quoteText(timezone) },
    prepared: { connections: streams, settings: { streaming_buffer_size: "'16MB'" } },
  });
  const pool = createConnectionPool(duckdb);
  return {
    pool,
    async [Symbol.asyncDispose]() {
      pool.close();
      await duckdb[Symbol.asyncDispose]();
    },
  };
}

/**
 * Reads by a connection of the pool's. One that is left in the middle of a stream must not be met by the next query.
 * @throws what DuckDB says
 */
export async function* onConnection<T, R>(
  pool: ConnectionPool,
  read: (connection: DuckDBConnection) => AsyncGenerator<T, R>,
): AsyncGenerator<T, R> {
  const connection = await pool.acquire();
  let release = (): void => {
    connection.closeSync();
  };
  try {
    const end = yield* read(connection);
    release = () => {
      pool.release(connection);
    };
    return end;
  } finally {
    release();
  }
}

/**
 * The chunks that a query gives, of 2,048 rows at most. A chunk holds until the next one is asked for.
 * A stream over a damaged file may end without an error: the caller must count the rows.
 */
export async function* streamChunks(connection: DuckDBConnection, sql: string): AsyncGenerator<DuckDBDataChunk> {
  const result = await connection.stream(sql);
  let fetched = result.fetchChunk();
  try {
    for (;;) {
      const chunk = await fetched;
      if (chunk === null || chunk.rowCount === 0) {
        return;
      }
      // Decoded while this one is packed: DuckDB's only thread may be the one that fetches.
      fetched = awaitedLater(result.fetchChunk());
      yield chunk;
    }
  } finally {
    await settled(fetched);
  }
}

/** Rows come in file order without a gap, whatever DuckDB's threads: a batch starts where the last one ended. */
export function checkRowNumbers(chunk: DuckDBDataChunk, expected: number, slice: SliceRequest): void {
  const numbers = readScalars(chunk, 0, "int64").data;
  const first = Number(numbers[0]);
  const last = Number(numbers[chunk.rowCount - 1]);
  if (first !== expected || last !== expected + chunk.rowCount - 1 || last >= slice.rowEnd) {
    throw new JobError(
      "SHARD_CORRUPT",
      `reading ${slice.file.path}: rows ${first}..${last} came where row ${expected} and the ${chunk.rowCount - 1} after it were expected`,
      { hint: "the file's row groups do not agree with its footer; write the shard again" },
    );
  }
}

interface ChunkBatch {
  readonly batch: RecordBatch;
  readonly rows: number;
}

/**
 * A chunk's rows: as one batch, or as several where their texts or lists would take more than `batchBytes`, as texts do
 * that are entries of a dictionary in DuckDB. `numbers`: columns before those that the projection asks for.
 * @param removed rows of the chunk, from 0 on, that are left out, ascending
 */
export function* recordBatches(
  chunk: DuckDBDataChunk,
  projection: Projection,
  { batchBytes }: Pick<MemoryBudget, "batchBytes">,
  { removed, numbers = 1 }: { readonly removed?: Uint32Array | undefined; readonly numbers?: number } = {},
): Generator<ChunkBatch> {
  const { expressions } = projection;
  const columns = openColumns(chunk, projection, expressions === null ? numbers : numbers + 1);
  const stated = expressions === null ? undefined : readStates(chunk, numbers);
  const states = removed === undefined ? stated : statesWithout(removed, chunk.rowCount, stated);
  for (let from = 0; from < chunk.rowCount; ) {
    const range = { from, to: chunk.rowCount, limit: batchBytes };
    const to = Math.min(rowsUpTo(columns.texts, range), from + rowsWithin(columns.nested, range));
    const batch = { rowCount: to - from, ...columns.read(from, to) };
    const selected = states === undefined ? batch : selectRows(batch, states.subarray(from, to), projection);
    yield { batch: selected, rows: to - from };
    from = to;
  }
}

/** The row after as many as hold `limit` bytes of texts together; after one in any case. */
function rowsUpTo(
  texts: readonly ChunkTexts[],
  { from, to, limit }: { readonly from: number; readonly to: number; readonly limit: number },
): number {
  const bytesTo = (row: number): number =>
    texts.reduce((sum, { ends }) => sum + (ends[row] ?? 0) - (ends[from] ?? 0), 0);
  if (bytesTo(to) <= limit) {
    return to;
  }
  let row = from + 1;
  while (bytesTo(row + 1) <= limit) {
    row += 1;
  }
  return row;
}

interface ChunkColumns {
  /** Text columns whose rows may share their bytes. */
  readonly texts: readonly ChunkTexts[];
  /** Lists and structs. */
  readonly nested: readonly Column[];
  read(from: number, to: number): Pick<RecordBatch, "inputs" | "carried">;
}

function openColumns(chunk: DuckDBDataChunk, projection: Projection, first: number): ChunkColumns {
  const { rowCount: rows } = chunk;
  const texts: ChunkTexts[] = [];
  const nested: Column[] = [];
  const openText = (index: number): ReadRows<BytesColumn> => {
    const column = openTexts(chunk, index);
    texts.push(column);
    return (from, to) => column.read(from, to);
  };
  const bindings = decodedInputs(projection);
  const inputs = bindings.map((binding, index): ReadRows<DecodedInput> => {
    if (binding.kind === "text") {
      return openText(index + first);
    }
    const all = readInput(chunk, index + first, binding);
    return (from, to) => inputRows(all, { from, to, rows });
  });
  const carried = projection.passthrough.map(({ source: { type } }, index): ReadRows<Column> => {
    const at = index + first + bindings.length;
    if (layoutOfType(type).kind === "bytes") {
      return openText(at);
    }
    const all = readColumn(chunk, at, type);
    nested.push(...(all.kind === "fixed" ? [] : [all]));
    return (from, to) => (from === 0 && to === rows ? all : sliceColumn(all, from, to));
  });
  return {
    texts,
    nested,
    read: (from, to) => ({
      inputs: inputs.map((read) => read(from, to)),
      carried: carried.map((read) => read(from, to)),
    }),
  };
}

type ReadRows<T> = (from: number, to: number) => T;

function inputRows(
  input: Matrix | ListColumn,
  { from, to, rows }: { readonly from: number; readonly to: number; readonly rows: number },
): DecodedInput {
  if (from === 0 && to === rows) {
    return input;
  }
  if (input.kind === "list") {
    return { ...input, offsets: input.offsets.subarray(from, to + 1), valid: input.valid?.subarray(from, to) };
  }
  const range = [from * input.width, to * input.width] as const;
  return { ...input, data: input.data.subarray(...range), valid: input.valid?.subarray(...range) };
}

function readStates(chunk: DuckDBDataChunk, index: number): Uint16Array {
  const { data } = readScalars(chunk, index, "uint16");
  if (!(data instanceof Uint16Array)) {
    throw new TypeError("states of rows are 16-bit numbers");
  }
  return data;
}

function readInput(
  chunk: DuckDBDataChunk,
  index: number,
  binding: Exclude<DecodedBinding, { kind: "text" }>,
): Matrix | ListColumn {
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  if (binding.kind === "padded") {
    const column = readColumn(chunk, index, { kind: "list", element });
    if (column.kind !== "list") {
      throw new TypeError("a column of lists is read as lists");
    }
    return column;
  }
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readScalars(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}
