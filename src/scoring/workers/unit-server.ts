/**
 * The worker's end of reading units. The worker decodes one unit after the other, scores them where its thread has a
 * session of the model, and sends rows as they are made. If it cannot continue, it ends the unit with the reason: the
 * main thread then reads the rest with the decoder, which reports what is wrong with the shard.
 */
import { type BufferPool, createBufferPool } from "../../columnar/memory/buffer-pool.js";
import { rowsWithin } from "../../columnar/columns.js";
import { decodedRowBytes } from "../../binding/row-bytes.js";
import { partBuffers } from "../../checks/profile/features.js";
import { doWithoutVectors } from "../../columnar/memory/vectors.js";
import { numericBuffers } from "../../columnar/tensor.js";
import type { ElementType } from "../../columnar/values.js";
import type { RunModel } from "../../engine/port.js";
import type { Unit, UnitReader } from "../../formats/port.js";
import type { HashedRows } from "../../packing/feature-hasher.js";
import type { Predictions, ScoredBatch } from "../../packing/packer.js";
import { JobError, errnoOf, messageOf } from "../../util/errors.js";
import { createCondition, createLimit } from "../../util/promises.js";
import { type RpcContext, type WorkerPort, serveRpc } from "../../util/rpc.js";
import { batchFeatures } from "../features.js";
import { directPlan } from "../../packing/direct.js";
import { matrixMemory, pooledBatchMemory } from "./batch-memory.js";
import { packParcel } from "./batch-transfer.js";
import { repeater } from "./folder-columns.js";
import type { ReadCall, SentRows, UnitFailure, UnitProtocol } from "./protocol.js";
import { scorer } from "./unit-scorer.js";

/** Bytes of rows that are sent and not released yet: more than most row groups have. */
const heldLimitBytes = 24 * 1024 * 1024;
/** Bytes of the rows that are sent at once, about. */
const batchBytes = 1024 * 1024;
const batchLimits = { least: 256, most: 16 * 1024 };
/** Milliseconds in the model for the rows that are sent at once, about. */
const stepMs = 50;

/** The models that a thread has. */
export interface UnitModels {
  /** The model that scores units; undefined: there is none in this thread. */
  readonly run?: RunModel | undefined;
}

export interface UnitServerOptions extends UnitModels {
  /** Opens the reader of a format's units. */
  readonly openReader: (format: Unit["format"]) => UnitReader;
  /** `ulimit -v` is set: WebAssembly, which reserves many more addresses than it uses, is left alone. */
  readonly isAddressSpaceLimited?: boolean | undefined;
}

/** Answers the calls that come on a port: reads one unit after the other. */
export function serveUnits(port: WorkerPort, options: UnitServerOptions): void {
  const held = heldRows();
  const server = openServer(options);
  const inTurn = createLimit(1);
  let isClosed = false;
  const read = async (call: ReadCall, { isCancelled, send }: RpcContext<SentRows>): Promise<void> => {
    const isUnneeded = (): boolean => isClosed || isCancelled();
    for await (const { rowStart, batch, buffers } of batchesOf(server, call)) {
      const sent = new Set([
        ...buffers,
        ...(batch.predictions ?? []).flatMap((part) => numericBuffers(part.outputs)),
        ...(batch.features ?? []).flatMap(partBuffers),
        ...(batch.hashed === undefined ? [] : hashBuffers(batch.hashed)),
      ]);
      const bytes = sizeOf([...sent]);
      send({ body: { rowStart, batch, buffers, bytes }, transfer: [...sent] });
      held.add(bytes);
      await untilHeard();
      await held.untilBelowLimit(call.limits.heldBytes, isUnneeded);
      if (isUnneeded()) {
        return;
      }
    }
  };
  serveRpc<UnitProtocol>(port, {
    calls: {
      async read(call, context) {
        context.onCancel(held.recheck);
        // Where it fails, the main thread reads the rest of the unit's rows.
        const failure = await inTurn(() => read(call, context).then(() => undefined, failureOf));
        return { body: failure };
      },
    },
    onNotice: {
      released({ buffers, bytes, batchRows }) {
        takeBack(server.pool, buffers);
        server.wantedRows = batchRows ?? server.wantedRows;
        held.add(-bytes);
      },
    },
  });
  port.on("close", () => {
    isClosed = true;
    held.recheck();
    void inTurn(() => close(server));
  });
}

function hashBuffers({ hashes, places }: HashedRows): ArrayBuffer[] {
  return places === undefined ? [hashes.buffer] : [hashes.buffer, places.buffer];
}

/** Lets the event loop handle messages of the main thread. */
async function untilHeard(): Promise<void> {
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
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

function openServer({ openReader, run, isAddressSpaceLimited }: UnitServerOptions): UnitServer {
  if (isAddressSpaceLimited === true) {
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

/** Releases all memory of a server. */
function close({ matrices, readers }: UnitServer): Promise<void> {
  matrices.clear();
  for (const reader of readers.values()) {
    reader.close();
  }
  return Promise.resolve();
}

/** Texts make buffers of many sizes, few of which fit again. */
function takeBack(pool: BufferPool, buffers: readonly ArrayBuffer[]): void {
  pool.release(buffers);
  if (pool.idleBytes > heldLimitBytes) {
    pool.clear();
  }
}

/** Bounds the bytes that were sent and not yet released by the main thread. */
interface HeldRows {
  add(bytes: number): void;
  /** Makes waiting calls check again whether their rows are still needed. */
  readonly recheck: () => void;
  /** Waits until more may be sent, or the rows are no longer needed. */
  untilBelowLimit(limitBytes: number, isUnneeded: () => boolean): Promise<void>;
}

function heldRows(): HeldRows {
  let held = 0;
  const changed = createCondition();
  return {
    add(bytes) {
      held += bytes;
      changed.notify();
    },
    recheck: changed.notify,
    async untilBelowLimit(limitBytes, isUnneeded) {
      const isFull = (): boolean => held > Math.min(limitBytes, heldLimitBytes);
      while (isFull() && !isUnneeded()) {
        await changed.wait();
      }
    },
  };
}

interface UnitServer extends UnitModels {
  readonly pool: BufferPool;
  /** Memory of the batch that is being made. */
  readonly matrices: ReturnType<typeof matrixMemory>;
  /** Opened when the first unit of their format comes. */
  readonly readers: ReadonlyMap<Unit["format"], UnitReader>;
  readonly readerOf: (format: Unit["format"]) => UnitReader;
  /** Rows of a batch for the model, as the main thread said last. */
  wantedRows: number | undefined;
}

interface SentBatch {
  /** The batch's first row, as a row of the shard. */
  readonly rowStart: number;
  readonly batch: ScoredBatch;
  readonly buffers: readonly ArrayBuffer[];
}

/** The rows of a unit, in order, in memory of their own. */
async function* batchesOf(
  server: UnitServer,
  { unit, projection, constants, scoring, features, limits }: ReadCall,
): AsyncGenerator<SentBatch> {
  const { pool, matrices, run } = server;
  const tools = pooledBatchMemory((bytes) => pool.take(bytes));
  const score = scoring === undefined || run === undefined ? undefined : scorer(scoring, run);
  // Copying floats that are sent pays off: vectors pack them in less than half the time.
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
      const from = rowStart - piece.rowStart;
      const most = Math.min(piece.rowEnd - rowStart, steps.rows());
      const range = { from, to: from + most, limit: limits.batchBytes };
      const rowEnd = rowStart + rowsWithin(piece.columns.values(), range);
      tools.clear();
      matrices.clear();
      const rows = { from, to: rowEnd - piece.rowStart };
      const batch = plan.batch(piece, rows, constantsOf(rowEnd - rowStart));
      const { predictions, hashed } = (await score?.(batch, modelRows())) ?? {};
      steps.took(batch.rowCount, predictions ?? []);
      // While the inputs are in the cache of the processor.
      const measured =
        predictions === undefined || features === undefined ? undefined : batchFeatures(features, batch, rowStart);
      const parcel = packParcel(predictions === undefined ? batch : { ...batch, inputs: [] }, tools);
      takeBack(pool, tools.left(parcel.buffers));
      const made = { ...parcel.batch, predictions, hashed, features: measured };
      yield { rowStart, batch: made, buffers: parcel.buffers };
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
