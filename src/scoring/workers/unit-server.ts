/**
 * Runs in a worker thread, maybe beside a session of the model: decodes units one after the other, and sends their
 * rows as they are made. Where it cannot go on it ends a unit early and says why: the main thread reads the rest with
 * the decoder, which tells what is wrong with the shard.
 */
import { readFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { type BufferPool, createBufferPool } from "../../columnar/memory/buffer-pool.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";
import { numericBuffers } from "../../columnar/tensor.js";
import type { Column } from "../../columnar/types.js";
import { bytesPerElement, type ElementType, type Values, viewOf } from "../../columnar/values.js";
import { doWithoutVectors, giveBackMemory, takeMemory } from "../../columnar/memory/vectors.js";
import type { Predictions, ScoredBatch } from "../../packing/scored.js";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";
import type { WorkerPort } from "../../util/worker-port.js";
import type { TakeValues } from "../../packing/direct/matrix.js";
import { directPlan } from "../../packing/direct/plan.js";
import { packParcel, type ParcelTools } from "./batch-transfer.js";
import type { FromUnitServer, ToUnitServer, UnitFailure, UnitRequest } from "./protocol.js";
import type { Projection } from "../../binding/contract.js";
import { decodedRowBytes } from "../../binding/row-bytes.js";
import type { Unit, UnitReader } from "../../formats/port.js";
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

type ReadMessage = Extract<ToUnitServer, { kind: "read" }>;

export interface UnitServerOptions {
  /** Opens the reader of a format's units. */
  readonly openReader: (format: Unit["format"]) => UnitReader;
  /** The model, where this thread has it. */
  readonly run?: RunModel | undefined;
}

/** Answers what comes on a port. */
export function serveUnits(port: WorkerPort, options: UnitServerOptions): void {
  const cancelled = new Set<number>();
  const held = heldRows();
  const server = openServer(options);
  let isClosed = false;
  const send = (message: FromUnitServer, transfer: readonly ArrayBuffer[] = []): void => {
    port.postMessage(message, [...transfer]);
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
  /** Where it fails, the main thread reads the rest of the unit's rows. */
  const answer = async (message: ReadMessage): Promise<void> => {
    const failure = await read(message).then(() => undefined, failureOf);
    cancelled.delete(message.id);
    send({ kind: "end", id: message.id, failure });
  };
  let queue = Promise.resolve();
  port.on("message", (received) => {
    const message = received as ToUnitServer;
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
  port.on("messageerror", endThread);
  port.on("close", () => {
    isClosed = true;
    held.add(0);
    void closeAfter(queue, server);
  });
}

/** What was asked for is not known: the main thread is told that this one has ended. */
function endThread(cause: unknown): never {
  throw new Error("a message did not arrive whole", { cause });
}

/** Node's own errors have codes, too; those of the system name the call. */
function isOfFile(error: unknown): boolean {
  return error instanceof Error && "syscall" in error && errnoOf(error) !== undefined;
}

function failureOf(error: unknown): UnitFailure {
  const isExpected = error instanceof RangeError || error instanceof JobError;
  const kind = isExpected ? "unsupported" : isOfFile(error) ? "file" : "defect";
  return { kind, message: kind === "defect" && error instanceof Error ? String(error.stack) : messageOf(error) };
}

function openServer({ openReader, run }: UnitServerOptions): UnitServer {
  if (isAddressSpaceLimited()) {
    doWithoutVectors();
  }
  const readers = new Map<Unit["format"], UnitReader>();
  return {
    pool: createBufferPool(),
    matrices: matrixMemory(),
    readerOf(format) {
      const reader = readers.get(format) ?? openReader(format);
      readers.set(format, reader);
      return reader;
    },
    readers,
    run,
    wantedRows: undefined,
  };
}

/** Gives back all memory when what is under way has ended. */
async function closeAfter(queue: Promise<unknown>, { matrices, readers }: UnitServer): Promise<void> {
  await queue;
  matrices.clear();
  for (const reader of readers.values()) {
    reader.close();
  }
}

/** `ulimit -v`. False where it is not known. */
function isAddressSpaceLimited(): boolean {
  try {
    return !/^Max address space +unlimited /m.test(readFileSync("/proc/self/limits", "latin1"));
  } catch {
    return false;
  }
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
  readonly matrices: ReturnType<typeof matrixMemory>;
  /** Opened when the first unit of their format comes. */
  readonly readers: ReadonlyMap<Unit["format"], UnitReader>;
  readonly readerOf: (format: Unit["format"]) => UnitReader;
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
  const { pool, matrices, run } = server;
  const tools = parcelTools((bytes) => pool.take(bytes));
  const score = scoring === undefined || run === undefined ? undefined : scorer(scoring, run);
  // Floats that are sent are worth a copy: vectors pack them in less than half the time.
  const isForVectors = (element: ElementType): boolean => score !== undefined || element === "float32";
  const plan = directPlan(projection, (element, length) =>
    (isForVectors(element) ? matrices : tools).take(element, length),
  );
  if (plan === undefined) {
    return;
  }
  const modelRows = (): number => scoring?.contract.fixedBatchRows ?? server.wantedRows ?? scoring?.batchRows ?? 0;
  const steps = stepsFor(decodedRowBytes(projection), score === undefined ? undefined : modelRows);
  const constantsOf = repeater(projection, constants);
  for await (const piece of server.readerOf(unit.format).read(unit, projection)) {
    for (let rowStart = piece.rowStart; rowStart < piece.rowEnd; ) {
      const rowEnd = Math.min(piece.rowEnd, rowStart + steps.rows());
      tools.clear();
      matrices.clear();
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
function matrixMemory(): { readonly take: TakeValues; clear(): void } {
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
