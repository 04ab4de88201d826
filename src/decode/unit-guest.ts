/**
 * Runs in a worker thread, maybe beside a session of the model: decodes units one after the other, and sends their
 * rows as they are made. What it cannot read, for whatever reason, it ends early: the main thread reads the rest in
 * another way, and tells what is wrong.
 */
import { closeSync, openSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { type BufferPool, createBufferPool } from "../batch/buffer-pool.js";
import { createColumnBuilder } from "../batch/column-builder.js";
import { numericBuffers } from "../batch/tensor.js";
import type { Column } from "../batch/types.js";
import { bytesPerElement, type Values, viewOf } from "../batch/values.js";
import { giveBackMemory, takeMemory } from "../batch/vectors.js";
import type { Predictions, ScoredBatch } from "../batch/scored.js";
import type { Line } from "../line.js";
import { cutPieces, type Piece } from "./arrow-batches.js";
import { openBytesHere, readFully } from "./arrow-bytes.js";
import type { TakeValues } from "./direct-cast.js";
import { directPlan } from "./direct-plan.js";
import { openShards } from "./arrow-shards.js";
import { packParcel, type ParcelTools } from "./batch-transfer.js";
import type { ArrowUnit, FromDecodeThread, ToDecodeThread, Unit, UnitRequest } from "./decode-protocol.js";
import type { PageRoom } from "./parquet-page-values.js";
import { type ParquetUnit, parquetPieces, type UnitTools } from "./parquet-units.js";
import { plannedColumns } from "./planned-columns.js";
import type { Projection } from "./port.js";
import { rowBytes } from "./threads.js";
import { type RunModel, scorer } from "./unit-scorer.js";

/** Rows that are sent and not taken yet: more than a row group mostly has. */
const heldLimitBytes = 24 * 1024 * 1024;
/** Of the rows that are sent at once, about. */
const batchBytes = 1024 * 1024;
const batchLimits = { least: 256, most: 16 * 1024 };
/** In the model, of rows that are sent together, about. */
const stepMs = 50;
/** Sizes are rounded up, so that buffers that come back fit again. */
const roundedBytes = 4096;

function roundUp(bytes: number): number {
  return Math.ceil(bytes / roundedBytes) * roundedBytes;
}

type ReadMessage = Extract<ToDecodeThread, { kind: "read" }>;

/** Answers what comes on a line. `run`: the model, where this thread has it. */
export function serve(line: Line, run?: RunModel): void {
  const cancelled = new Set<number>();
  const held = heldRows();
  const pool = createBufferPool();
  const server: UnitServer = { pool, kept: keptValues(), readers: unitReaders(), run, wantedRows: undefined };
  let isClosed = false;
  const send = (message: FromDecodeThread, transfer: readonly ArrayBuffer[] = []): void => {
    line.postMessage(message, [...transfer]);
  };
  const read = async (message: ReadMessage): Promise<void> => {
    const { id } = message;
    const isUnwanted = (): boolean => isClosed || cancelled.has(id);
    for await (const { rowStart, batch, buffers } of batchesOf(server, message)) {
      const sent = new Set([...buffers, ...(batch.predictions ?? []).flatMap((part) => numericBuffers(part.outputs))]);
      const bytes = sizeOf([...sent]);
      send({ kind: "rows", id, rowStart, batch, buffers, bytes }, [...sent]);
      held.add(bytes);
      await setImmediate(); // hears what the main thread says
      await held.room(isUnwanted);
      if (isUnwanted()) {
        return;
      }
    }
  };
  /** Where it fails, whoever waits for the rest of its rows reads them in another way. */
  const answer = async (message: ReadMessage): Promise<void> => {
    await read(message).catch(() => undefined);
    cancelled.delete(message.id);
    send({ kind: "end", id: message.id });
  };
  let queue = Promise.resolve();
  line.on("message", (received) => {
    const message = received as ToDecodeThread;
    if (message.kind === "read") {
      queue = queue.then(() => answer(message));
    } else if (message.kind === "cancel") {
      cancelled.add(message.id);
      held.add(0);
    } else {
      takeBack(server.pool, message.buffers);
      server.wantedRows = message.batchRows ?? server.wantedRows;
      held.add(-message.bytes);
    }
  });
  line.on("close", () => {
    isClosed = true;
    held.add(0);
  });
}

/** Texts make buffers of many sizes, few of which fit again. */
function takeBack(pool: BufferPool, buffers: readonly ArrayBuffer[]): void {
  pool.giveBack(buffers);
  if (pool.idleBytes > heldLimitBytes) {
    pool.clear();
  }
}

/** Bytes that were sent and have not come back. */
function heldRows(): { add(bytes: number): void; room(isUnwanted: () => boolean): Promise<void> } {
  let held = 0;
  let wake: (() => void) | undefined;
  const isFull = (): boolean => held > heldLimitBytes;
  return {
    add(bytes) {
      held += bytes;
      wake?.();
    },
    async room(isUnwanted) {
      while (isFull() && !isUnwanted()) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}

interface UnitServer {
  readonly pool: BufferPool;
  /** Of the batch that is being made. */
  readonly kept: ReturnType<typeof keptValues>;
  readonly readers: ReturnType<typeof unitReaders>;
  readonly run: RunModel | undefined;
  /** Rows of a batch for the model, as the main thread said last. */
  wantedRows: number | undefined;
}

interface SentBatch {
  /** Of the shard, its first row. */
  readonly rowStart: number;
  readonly batch: ScoredBatch;
  readonly buffers: readonly ArrayBuffer[];
}

/** The rows of a unit, in order, in memory of their own. */
async function* batchesOf(
  server: UnitServer,
  { unit, projection, constants, scoring }: ReadMessage,
): AsyncGenerator<SentBatch> {
  const { pool, kept, run } = server;
  const tools = parcelTools((bytes) => pool.take(bytes));
  const score = scoring === undefined || run === undefined ? undefined : scorer(scoring, run);
  // Floats are worth a copy where they are sent: vectors pack them in less than half the time.
  const plan = directPlan(projection, (element, length) =>
    score === undefined && element !== "float32" ? tools.take(element, length) : kept.take(element, length),
  );
  if (plan === undefined) {
    return;
  }
  const modelRows = (): number => scoring?.contract.fixedBatchRows ?? server.wantedRows ?? scoring?.batchRows ?? 0;
  const steps = stepsFor(rowBytes(projection), score === undefined ? undefined : modelRows);
  const constantsOf = repeater(projection, constants);
  for await (const piece of server.readers.read(unit, projection)) {
    for (let rowStart = piece.rowStart; rowStart < piece.rowEnd; ) {
      const rowEnd = Math.min(piece.rowEnd, rowStart + steps.rows());
      tools.clear();
      kept.clear();
      const rows = { from: rowStart - piece.rowStart, to: rowEnd - piece.rowStart };
      const batch = plan.batch(piece, rows, constantsOf(rowEnd - rowStart));
      const predictions = await score?.(batch, modelRows());
      steps.took(batch.rowCount, predictions ?? []);
      const parcel = packParcel(predictions === undefined ? batch : { ...batch, inputs: [] }, tools);
      takeBack(pool, tools.left(parcel.buffers));
      yield { rowStart, batch: { ...parcel.batch, predictions }, buffers: parcel.buffers };
      rowStart = rowEnd;
    }
  }
}

/** How many rows are sent at once: of those that are scored, some batches of the model, as many as do not take long. */
function stepsFor(
  bytesPerRow: number,
  modelRows: (() => number) | undefined,
): { rows(): number; took(rows: number, predictions: readonly Predictions[]): void } {
  const most = Math.max(batchLimits.least, Math.min(batchLimits.most, Math.floor(batchBytes / bytesPerRow)));
  let rowsPerMs = 0;
  return {
    rows() {
      const rows = modelRows?.() ?? most;
      return rows * Math.max(1, Math.floor(Math.min(most, rowsPerMs * stepMs) / rows));
    },
    took(rows, predictions) {
      const ms = predictions.reduce((sum, part) => sum + part.ms, 0);
      rowsPerMs = rows / Math.max(1, ms);
    },
  };
}

function sizeOf(buffers: readonly ArrayBuffer[]): number {
  return buffers.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

interface PooledTools extends ParcelTools {
  /** Those of the buffers that were taken that were not sent. */
  left(sent: readonly ArrayBuffer[]): ArrayBuffer[];
  /** Another batch begins. */
  clear(): void;
}

/** Memory from a pool, which knows what was made for one batch. */
function parcelTools(takeBuffer: (bytes: number) => ArrayBuffer): PooledTools {
  const made = new Map<Values, ArrayBuffer>();
  return {
    take(element, length) {
      const bytes = length * bytesPerElement(element);
      const buffer = takeBuffer(roundUp(bytes));
      const values = viewOf(element, buffer, 0, length);
      made.set(values, buffer);
      return values;
    },
    isOwn: (values) => made.has(values),
    left: (sent) => [...made.values()].filter((buffer) => !sent.includes(buffer)),
    clear() {
      made.clear();
    },
  };
}

/** Memory for what is not sent, or only copies of it. */
function keptValues(): { readonly take: TakeValues; clear(): void } {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  return {
    take(element, length) {
      const piece = takeMemory(length * bytesPerElement(element));
      pieces.push(piece);
      return viewOf(element, piece.buffer, piece.byteOffset, length);
    },
    clear() {
      giveBackMemory(pieces.splice(0));
    },
  };
}

/** Columns from folder names, of one row each, as columns of at least so many. */
function repeater(projection: Projection, constants: UnitRequest["constants"]): (rows: number) => Map<string, Column> {
  let made = { rows: 0, columns: new Map<string, Column>() };
  const repeated = (rows: number): Map<string, Column> => {
    const columns = new Map<string, Column>();
    for (const { source } of projection.passthrough) {
      const one = constants.get(source.path[0] ?? "");
      if (source.partition === true && one !== undefined) {
        const builder = createColumnBuilder(source.type, rows);
        for (let row = 0; row < rows; row += 1) {
          builder.append(one, 0, 1);
        }
        columns.set(source.path[0] ?? "", builder.finish());
      }
    }
    return columns;
  };
  return (rows) => {
    made = made.rows < rows ? { rows, columns: repeated(rows) } : made;
    return made.columns;
  };
}

/** What is kept from unit to unit. */
function unitReaders(): {
  read(unit: Unit, projection: Projection): AsyncIterable<Piece> | Iterable<Piece>;
} {
  const rooms: PageRoom[] = [];
  let packed = new Uint8Array(64 * 1024);
  const scratch = (size: number): Uint8Array => {
    packed = packed.length < size ? new Uint8Array(size) : packed;
    return packed;
  };
  const openArrow = new Map<ArrowUnit["claim"], ReturnType<typeof openShards>>();
  const open = (claim: ArrowUnit["claim"]): ReturnType<typeof openShards> => {
    const shards = openArrow.get(claim) ?? openShards(() => claim, openBytesHere);
    openArrow.set(claim, shards);
    return shards;
  };
  return {
    read: (unit, projection) =>
      unit.kind === "parquet" ? parquetRows(unit, { scratch, rooms }) : arrowRows(unit, projection, open(unit.claim)),
  };
}

function* parquetRows(unit: ParquetUnit, tools: Omit<UnitTools, "read">): Generator<Piece> {
  const file = openSync(unit.path, "r");
  try {
    yield* parquetPieces(unit, {
      ...tools,
      read(bytes, start) {
        readFully(file, { path: unit.path, name: unit.path }, { bytes, start });
      },
    });
  } finally {
    closeSync(file);
  }
}

async function* arrowRows(
  unit: ArrowUnit,
  projection: Projection,
  open: ReturnType<typeof openShards>,
): AsyncGenerator<Piece> {
  const lent: Uint8Array<ArrayBuffer>[] = [];
  const lend = (bytes: number): Uint8Array<ArrayBuffer> => {
    const memory = takeMemory(bytes);
    lent.push(memory);
    return memory;
  };
  await using shard = await open({ path: unit.path, name: unit.path });
  const request = { ...unit, columns: plannedColumns(projection), known: shard.known, lend };
  try {
    for await (const piece of cutPieces(shard.bytes, shard.index, request)) {
      yield piece;
      giveBackMemory(lent.splice(0));
    }
  } finally {
    giveBackMemory(lent);
  }
}
