import { type BufferPool, createBufferPool } from "../../columnar/memory/buffer-pool.js";
import { rowsWithin } from "../../columnar/column-bytes.js";
import { type NamedTensor, numericBuffers } from "../../columnar/tensor.js";
import {
  allocate,
  bytesPerElement,
  copyValues,
  elementOf,
  type ElementType,
  type Values,
  viewOf,
} from "../../columnar/values.js";
import { doWithoutVectors, releaseMemory, takeMemory } from "../../columnar/memory/vectors.js";
import { createFeatureHasher, type FeatureHashing, type HashedRows } from "../../packing/feature-hasher.js";
import type { Predictions, ScoredBatch } from "../../packing/scored-batch.js";
import { createCondition } from "../../util/condition.js";
import { assertNever, errnoOf, JobError, messageOf } from "../../util/errors.js";
import { createLimit } from "../../util/limit.js";
import { type RpcContext, serveRpc } from "../../util/rpc/server.js";
import type { WorkerPort } from "../../util/worker-port.js";
import { partBuffers } from "../../checks/profile/features.js";
import { batchFeatures } from "../features.js";
import { directPlan } from "../../packing/direct/plan.js";
import {
  type ReadCall,
  type SentRows,
  type UnitFailure,
  unitProtocol,
  type UnitRequest,
  type UnitScoring,
} from "./protocol.js";
import type { RunModel } from "../../engine/port.js";
import { decodedRowBytes } from "../../binding/row-bytes.js";
import type { Unit, UnitReader } from "../../formats/port.js";
import { createPacker, type FeatureBatch } from "../../packing/packer.js";
import type { Column, DecodedInput, Matrix, RecordBatch } from "../../columnar/types.js";
import { type Contract, decodedInputs, type Projection } from "../../binding/contract.js";
import { selectInputs } from "../../packing/select-rows.js";
import { createStage } from "../../packing/stage.js";
import { noPlace } from "../../packing/stored-table.js";
import { areSurelyFinite, matrixDims } from "../../packing/input-target.js";
import type { TakeValues } from "../../packing/direct/matrix.js";
import { rowsOf, sliceColumn } from "../../columnar/column-rows.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";

/**
 * The worker's end of reading units. The worker decodes one unit after the other, scores them where its thread has a
 * session of the model, and sends rows as they are made. If it cannot continue, it ends the unit with the reason: the
 * main thread then reads the rest with the decoder, which reports what is wrong with the shard.
 */

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

interface UnitServerOptions extends UnitModels {
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
  serveRpc(port, unitProtocol, {
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

/** Scores a batch, so many rows at a time; undefined: a row is bad, or the model fails. */
type ScoreBatch = (
  batch: RecordBatch,
  rows: number,
) => Promise<(Pick<ScoredBatch, "hashed"> & { readonly predictions: Predictions[] }) | undefined>;

/** Scores the rows of batches; where rows are hashed, those that take no stored prediction. @public so that tests call it */
export function scorer(scoring: Pick<UnitScoring, "contract" | "tensors" | "hashing">, run: RunModel): ScoreBatch {
  const score = rowScorer(scoring, run);
  const hash = scoring.hashing && unitHasher(scoring.contract, scoring.hashing);
  return async (batch, rows) => {
    if (hash === undefined) {
      const predictions = await score(batch, rows);
      return predictions && { predictions };
    }
    const sinceMs = performance.now();
    const hashed = hash(batch);
    if (hashed === undefined) {
      return undefined;
    }
    const left = rowsToScore(batch, hashed);
    const ms = performance.now() - sinceMs;
    const predictions = await score(left, rows);
    return predictions && { predictions, hashed: { ...hashed, ms } };
  };
}

function rowScorer(
  { contract, tensors }: Pick<UnitScoring, "contract" | "tensors">,
  run: RunModel,
): (batch: RecordBatch, rows: number) => Promise<Predictions[] | undefined> {
  let packing = createPacking(contract);
  return async (batch, rows) => {
    const predictions: Predictions[] = [];
    const isPlain = batch.inputs.every(isGood);
    let isAtModel = false;
    try {
      for (let from = 0; from < batch.rowCount; from += rows) {
        const range = { from, to: Math.min(from + rows, batch.rowCount) };
        const there = isPlain ? inPlace(contract, batch, range) : undefined;
        const packed = there ?? packing.pack(batch, range, rows);
        if (packed === undefined) {
          return undefined;
        }
        isAtModel = true;
        const { outputs, ms, byTrees } = await run({ inputs: packed.inputs, outputs: tensors });
        isAtModel = false;
        predictions.push({ rowCount: range.to - from, outputs, ms, byTrees, packedRows: packed.packedRows });
        if (there === undefined) {
          packing.recycle(packed.inputs);
        }
      }
    } catch (error) {
      packing = createPacking(contract); // the state of the old one is unknown
      if (isAtModel) {
        return undefined; // the main thread finds the rows that the model fails on
      }
      throw error;
    }
    return predictions;
  };
}

interface Packing {
  /** Packs rows, at most `most`, as the main thread does; undefined where one is bad. */
  pack(batch: RecordBatch, rows: Rows, most: number): PackedBatch | undefined;
  recycle(inputs: readonly NamedTensor[]): void;
}

/** Packs batch after batch into the same memory. */
function createPacking(contract: UnitScoring["contract"]): Packing {
  let isFaulty = false;
  let batchRows = 0;
  const onFault = (): void => {
    isFaulty = true;
  };
  const packer = createPacker({ contract, batchRows: () => batchRows, onFault });
  return {
    pack(batch, { from, to }, most) {
      isFaulty = false;
      batchRows = most;
      const [full] = packer.push(batch, { from, to, row: 0 });
      const packed = full ?? packer.flush();
      if (packed === undefined) {
        return undefined;
      }
      if (isFaulty || packed.rowCount !== to - from) {
        packer.recycle(packed.inputs);
        return undefined;
      }
      return packed;
    },
    recycle(inputs) {
      packer.recycle(inputs);
    },
  };
}

/**
 * Hashes the rows of batches as the main thread does, before they are scored. Returns undefined for a batch with a bad row,
 * which the main thread reports.
 */
function unitHasher(contract: Contract, hashing: FeatureHashing): (batch: RecordBatch) => HashedRows | undefined {
  const hasher = createFeatureHasher(contract, hashing);
  const inputs = decodedInputs(contract).length;
  let isFaulty = false;
  const stage = createStage(contract, () => {
    isFaulty = true;
  });
  return (batch) => {
    const all = { from: 0, to: batch.rowCount };
    // A fixed number of rows is a matter of the model: hashes do not depend on it.
    const there = batch.inputs.slice(0, inputs).every(isGood)
      ? inPlace({ inputs: contract.inputs, fixedBatchRows: null }, batch, all)
      : undefined;
    if (there !== undefined) {
      return hasher.hash(there.inputs, batch, all);
    }
    isFaulty = false;
    const parts: HashedRows[] = [];
    for (let from = 0; from < batch.rowCount; from += stage.rows) {
      const range = { from, to: Math.min(batch.rowCount, from + stage.rows) };
      stage.pack(batch, { ...range, row: from }, (tensors) => {
        parts.push(hasher.hash(tensors, batch, range));
      });
    }
    return isFaulty ? undefined : joined(parts);
  };
}

function joined(parts: readonly HashedRows[]): HashedRows {
  const isCompared = parts.some(({ places }) => places !== undefined);
  return {
    hashes: concat(parts.map(({ hashes }) => hashes)),
    places: isCompared ? concat(parts.map(({ places = new Int32Array() }) => places)) : undefined,
  };
}

function concat(arrays: readonly Int32Array[]): Int32Array<ArrayBuffer> {
  const all = new Int32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

/** Copies what the model gets of the rows that take no stored prediction. */
function rowsToScore(batch: RecordBatch, { places }: HashedRows): RecordBatch {
  if (places === undefined) {
    return batch;
  }
  const keep = new Uint8Array(batch.rowCount);
  let rowCount = 0;
  for (let row = 0; row < keep.length; row += 1) {
    if (places[row] === noPlace) {
      keep[row] = 1;
      rowCount += 1;
    }
  }
  return rowCount === batch.rowCount
    ? batch
    : { rowCount, inputs: selectInputs(batch.inputs, keep, rowCount), carried: [] };
}

/** Whether no row of an input can be bad, so that its rows need not be checked one by one. */
function isGood(input: DecodedInput): boolean {
  return input.kind === "matrix" && input.valid === undefined && isKnownFinite(input);
}

/** Rows as the model takes them. */
type PackedBatch = Pick<FeatureBatch, "inputs" | "packedRows">;

/** Rows [from, to) of a batch. */
interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Returns rows of good matrices as tensors without a copy; undefined: the model needs tensors of another form. */
function inPlace(
  { inputs, fixedBatchRows }: Pick<Contract, "inputs" | "fixedBatchRows">,
  batch: Pick<RecordBatch, "inputs">,
  { from, to }: Rows,
): PackedBatch | undefined {
  const rows = to - from;
  if (fixedBatchRows !== null && fixedBatchRows !== rows) {
    return undefined;
  }
  const tensors: NamedTensor[] = [];
  for (const [index, binding] of inputs.entries()) {
    const matrix = batch.inputs[index];
    const isMatrix = binding.kind === "matrix" || binding.kind === "list";
    if (!isMatrix || binding.dtype === "float16" || matrix?.kind !== "matrix") {
      return undefined;
    }
    const { width } = matrix;
    const data = matrix.data.subarray(from * width, to * width);
    tensors.push({ name: binding.input, dtype: binding.dtype, dims: matrixDims(binding, rows, width), data });
  }
  return { inputs: tensors, packedRows: rows };
}

/** Sizes are rounded up, so that released buffers fit again. */
const roundedBytes = 4096;

function roundUp(bytes: number): number {
  return Math.ceil(bytes / roundedBytes) * roundedBytes;
}

interface PooledBatchMemory extends BatchMemory {
  /** The buffers that were allocated for the batch and were not sent. */
  left(sent: readonly ArrayBuffer[]): ArrayBuffer[];
  /** Forgets the buffers of the batch before. */
  clear(): void;
}

/** Takes memory from a pool, and remembers what it took for one batch. */
function pooledBatchMemory(takeBuffer: (bytes: number) => ArrayBuffer): PooledBatchMemory {
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

/** Memory for arrays that are not sent to another thread, or are sent as copies. */
function matrixMemory(): { readonly take: TakeValues; clear(): void } {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  return {
    take(element, length) {
      const piece = takeMemory(length * bytesPerElement(element));
      pieces.push(piece);
      return viewOf(element, piece.buffer, piece.byteOffset, length);
    },
    clear() {
      releaseMemory(pieces.splice(0));
    },
  };
}

/** A batch whose arrays are the only ones in their buffers, so that these can be sent to another thread. */
interface Parcel {
  readonly batch: RecordBatch;
  readonly buffers: readonly ArrayBuffer[];
}

interface BatchMemory {
  readonly take: TakeValues;
  /** Whether an array was made for this batch, and nothing else is in its buffer. */
  readonly isOwn: (values: Values) => boolean;
}

/** Makes a batch transferable: copies arrays whose buffer is shared. @public so that tests call it */
export function packParcel(batch: RecordBatch, { take, isOwn }: BatchMemory): Parcel {
  const buffers: ArrayBuffer[] = [];
  const own = <T extends Values>(values: T): T => {
    let array: Values = values;
    if (!isOwn(values)) {
      array = take(elementOf(values), values.length);
      copyValues(array, 0, values, 0, values.length);
    }
    buffers.push(array.buffer);
    return array as T;
  };
  const ownColumn = <T extends Column>(column: T): T => movedColumn(column, own) as T;
  const inputs = batch.inputs.map((input): DecodedInput => {
    if (input.kind !== "matrix") {
      return ownColumn(input);
    }
    const valid = input.valid === undefined ? undefined : own(input.valid as Uint8Array<ArrayBuffer>);
    return { ...input, data: own(input.data), valid, isFinite: isKnownFinite(input) || undefined };
  });
  return { batch: { rowCount: batch.rowCount, inputs, carried: batch.carried.map(ownColumn) }, buffers };
}

/** Whether all values are finite. Checked in the thread that made them, while they are in its cache. */
function isKnownFinite({ data, isFinite }: Matrix): boolean {
  return isFinite ?? (!(data instanceof Float32Array || data instanceof Float64Array) || areSurelyFinite(data));
}

type Own = <T extends Values>(values: T) => T;

function movedColumn(column: Column, own: Own): Column {
  const valid = column.valid === undefined ? undefined : own(column.valid as Uint8Array<ArrayBuffer>);
  switch (column.kind) {
    case "fixed":
      return { ...column, data: own(column.data), valid };
    case "bytes": {
      const { offsets, start, end } = fromZero(column.offsets);
      const bytes = column.bytes.subarray(start, end) as Uint8Array<ArrayBuffer>;
      return { kind: "bytes", offsets: own(offsets), bytes: own(bytes), valid };
    }
    case "list": {
      const { offsets, start, end } = fromZero(column.offsets);
      return {
        kind: "list",
        offsets: own(offsets),
        child: movedColumn(sliceColumn(column.child, start, end), own),
        valid,
      };
    }
    case "struct": {
      const children = column.children.map((child) => movedColumn(child, own));
      return { kind: "struct", rowCount: rowsOf(column), children, valid };
    }
    default:
      return assertNever(column);
  }
}

function fromZero(offsets: Uint32Array): { offsets: Uint32Array<ArrayBuffer>; start: number; end: number } {
  const start = offsets[0] ?? 0;
  const moved = allocate("uint32", offsets.length) as Uint32Array<ArrayBuffer>;
  for (let index = 0; index < offsets.length; index += 1) {
    moved[index] = (offsets[index] as number) - start;
  }
  return { offsets: moved, start, end: offsets.at(-1) ?? 0 };
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
