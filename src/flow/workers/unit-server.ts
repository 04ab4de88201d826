import { type BufferPool, createBufferPool } from "../../columns/loops/buffer-pool.js";
import { createColumnBuilder, rowCountOf, rowsWithin, sliceColumn } from "../../columns/columns.js";
import { decodedRowBytes } from "../../models/binding/row-bytes.js";
import { partBuffers } from "../../checks/profile/features.js";
import { doWithoutVectors, releaseMemory, takeMemory } from "../../columns/loops/vectors.js";
import { type NamedTensor, numericBuffers } from "../../columns/tensor.js";
import {
  type ElementType,
  type Values,
  allocate,
  bytesPerElement,
  copyValues,
  elementOf,
  viewOf,
} from "../../columns/values.js";
import type { RunModel } from "../../models/engine.js";
import type { Unit, UnitReader } from "../../formats/format.js";
import { type FeatureHashing, type HashedRows, createFeatureHasher, noPlace } from "../pack/feature-hasher.js";
import { type FeatureBatch, type Predictions, type ReadBatch, createPacker } from "../pack/packer.js";
import { JobError, assertNever, errnoOf, messageOf } from "../../base/errors.js";
import { createCondition, createLimit } from "../../base/promises.js";
import { type RpcContext, type WorkerPort, serveRpc } from "../../base/rpc.js";
import { batchFeatures } from "../features.js";
import { type TakeValues, directPlan } from "../pack/direct.js";
import type { ReadCall, SentRows, UnitFailure, UnitProtocol, UnitRequest, UnitScoring } from "./protocol.js";
import type { Column, DecodedInput, Matrix, RecordBatch } from "../../columns/types.js";
import { type Contract, type Projection, decodedInputs } from "../../models/binding/contract.js";
import { numbersIn, selectInputs, selectRows, statesWithout } from "../pack/select-rows.js";
import { type BatchRows, areSurelyFinite, matrixDims } from "../pack/input-target.js";
import { createStage } from "../pack/row-reuse.js";

/*
 * The life of a worker thread that reads units: it decodes one unit after the other, scores its rows where the thread has
 * a session of the model, and sends rows as they are made. If it cannot continue, it ends the unit with the reason: the
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
  readonly openReader: (format: Unit["format"]) => UnitReader;
  /** `ulimit -v` is set: WebAssembly, which reserves many more addresses than it uses, is left alone. */
  readonly isAddressSpaceLimited?: boolean | undefined;
}

/** Answers the calls that come on a port: reads one unit after the other. */
export function serveUnits(port: WorkerPort, { openReader, run, isAddressSpaceLimited }: UnitServerOptions): void {
  if (isAddressSpaceLimited === true) {
    doWithoutVectors();
  }
  const pool = createBufferPool();
  const own = pooledMemory(pool);
  const matrices = matrixMemory();
  const readers = new Map<Unit["format"], UnitReader>();
  const inTurn = createLimit(1);
  const changed = createCondition();
  let heldBytes = 0;
  /** Rows of a batch for the model, as the main thread said last. */
  let wantedRows: number | undefined;
  let isClosed = false;

  /** Texts make buffers of many sizes, few of which fit again. */
  const takeBack = (buffers: readonly ArrayBuffer[]): void => {
    pool.release(buffers);
    if (pool.idleBytes > heldLimitBytes) {
      pool.clear();
    }
  };

  const read = async (call: ReadCall, { isCancelled, send }: RpcContext<SentRows>): Promise<void> => {
    const { unit, projection, constants, removed, scoring, features, limits } = call;
    const score = scoring === undefined || run === undefined ? undefined : scorer(scoring, run);
    // Copying floats that are sent pays off: vectors pack them in less than half the time.
    const isForVectors = (element: ElementType): boolean => score !== undefined || element === "float32";
    const plan = directPlan(projection, (element, length) =>
      (isForVectors(element) ? matrices : own).take(element, length),
    );
    if (plan === undefined) {
      return;
    }

    const modelRows = (): number => scoring?.contract.fixedBatchRows ?? wantedRows ?? scoring?.batchRows ?? 0;
    const steps = stepsFor(decodedRowBytes(projection), score === undefined ? undefined : modelRows);
    const constantsOf = repeater(projection, constants);
    const reader = readers.get(unit.format) ?? openReader(unit.format);
    readers.set(unit.format, reader);
    const isUnneeded = (): boolean => isClosed || isCancelled();
    for await (const piece of reader.read(unit, projection)) {
      for (let rowStart = piece.rowStart; rowStart < piece.rowEnd; ) {
        const from = rowStart - piece.rowStart;
        const most = Math.min(piece.rowEnd - rowStart, steps.rows());
        const rowCount = rowsWithin(piece.columns.values(), { from, to: from + most, limit: limits.batchBytes });
        own.clear();
        matrices.clear();
        const whole = plan.batch(piece, { from, to: from + rowCount }, constantsOf(rowCount));
        const states = statesWithout(numbersIn(removed, { rowStart, rowEnd: rowStart + rowCount }), rowCount);
        const batch = states === undefined ? whole : selectRows(whole, states, projection);
        const { predictions, hashed } = (await score?.(batch, modelRows())) ?? {};
        steps.took(rowCount, predictions ?? []);

        // Features are measured while the inputs are in the cache of the processor.
        const isMeasured = predictions !== undefined && features !== undefined;
        const measured = isMeasured ? batchFeatures(features, batch, rowStart) : undefined;

        const parcel = packParcel(predictions === undefined ? batch : { ...batch, inputs: [] }, own);
        takeBack(own.left(parcel.buffers));
        const sent = new Set([
          ...parcel.buffers,
          ...(predictions ?? []).flatMap(({ outputs }) => numericBuffers(outputs)),
          ...(measured ?? []).flatMap(partBuffers),
          ...(hashed === undefined ? [] : [hashed.hashes.buffer]),
          ...(hashed?.places === undefined ? [] : [hashed.places.buffer]),
        ]);
        const bytes = [...sent].reduce((sum, { byteLength }) => sum + byteLength, 0);
        const { selection } = batch;
        const made = { ...parcel.batch, selection, predictions, hashed, features: measured };
        send({ body: { rowStart, batch: made, buffers: parcel.buffers, bytes }, transfer: [...sent] });
        heldBytes += bytes;

        await untilHeard();
        while (heldBytes > Math.min(limits.heldBytes, heldLimitBytes) && !isUnneeded()) {
          await changed.wait();
        }
        if (isUnneeded()) {
          return;
        }
        rowStart += rowCount;
      }
    }
  };
  serveRpc<UnitProtocol>(port, {
    calls: {
      async read(call, context) {
        context.onCancel(changed.notify);
        return { body: await inTurn(() => read(call, context).then(() => undefined, failureOf)) };
      },
    },
    onNotice: {
      released({ buffers, bytes, batchRows }) {
        takeBack(buffers);
        wantedRows = batchRows ?? wantedRows;
        heldBytes -= bytes;
        changed.notify();
      },
    },
  });
  port.on("close", () => {
    isClosed = true;
    changed.notify();
    void inTurn(() => {
      matrices.clear();
      for (const reader of readers.values()) {
        reader.close();
      }
      return Promise.resolve();
    });
  });
}

/** Lets the event loop handle messages of the main thread. */
async function untilHeard(): Promise<void> {
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function failureOf(error: unknown): UnitFailure {
  if (error instanceof RangeError || error instanceof JobError) {
    return { kind: "unsupported", message: error.message };
  }
  // Node's own errors have codes, too; those of the system name the call.
  return error instanceof Error && "syscall" in error && errnoOf(error) !== undefined
    ? { kind: "file", message: error.message }
    : { kind: "defect", message: error instanceof Error ? String(error.stack) : messageOf(error) };
}

/** Of rows that are scored: some batches of the model, as many as do not take long. */
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

/** Scores a batch, so many rows at a time; undefined: a row is bad, or the model fails. */
type ScoreBatch = (
  batch: RecordBatch,
  rows: number,
) => Promise<(Pick<ReadBatch, "hashed"> & { readonly predictions: Predictions[] }) | undefined>;

/** Scores the rows of batches; where rows are hashed, those that take no stored prediction. @public so that tests call it */
export function scorer(
  { contract, tensors, hashing }: Pick<UnitScoring, "contract" | "tensors" | "hashing">,
  run: RunModel,
): ScoreBatch {
  const hash = hashing && unitHasher(contract, hashing);
  let packing = createPacking(contract);
  return async (given, rows) => {
    const sinceMs = performance.now();
    const hashed = hash?.(given);
    if (hash !== undefined && hashed === undefined) {
      return undefined;
    }
    const batch = hashed === undefined ? given : rowsToScore(given, hashed);
    const ms = performance.now() - sinceMs;

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
        const { outputs, ms: modelMs, byTrees } = await run({ inputs: packed.inputs, outputs: tensors });
        isAtModel = false;
        predictions.push({ rowCount: range.to - from, outputs, ms: modelMs, byTrees, packedRows: packed.packedRows });
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
    return { predictions, hashed: hashed && { ...hashed, ms } };
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

/** Hashes as the main thread does, before rows are scored; undefined: a row is bad, which the main thread reports. */
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

type PackedBatch = Pick<FeatureBatch, "inputs" | "packedRows">;
type Rows = Pick<BatchRows, "from" | "to">;

/** Without a copy; undefined: the model needs tensors of another form. */
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

interface PooledMemory extends BatchMemory {
  left(sent: readonly ArrayBuffer[]): ArrayBuffer[];
  clear(): void;
}

function pooledMemory(pool: BufferPool): PooledMemory {
  const made = new Map<Values, ArrayBuffer>();
  return {
    take(element, length) {
      const buffer = pool.take(Math.ceil((length * bytesPerElement(element)) / roundedBytes) * roundedBytes);
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

/** Checked in the thread that made them, while they are in its cache. */
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
      return { kind: "struct", rowCount: rowCountOf(column), children, valid };
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
  const folders = projection.passthrough.filter(({ source }) => source.partition === true);
  let made = { rows: 0, columns: new Map<string, Column>() };
  return (rows) => {
    if (made.rows < rows) {
      const columns = new Map<string, Column>();
      for (const { source } of folders) {
        const name = source.path[0] ?? "";
        const value = constants.get(name);
        if (value !== undefined) {
          const builder = createColumnBuilder(source.type, rows);
          for (let row = 0; row < rows; row += 1) {
            builder.append(value, 0, 1);
          }
          columns.set(name, builder.finish());
        }
      }
      made = { rows, columns };
    }
    return made.columns;
  };
}
