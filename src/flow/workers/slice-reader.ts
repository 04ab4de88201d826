import { type Contract, valuesPerRow } from "../../models/binding/contract.js";
import type { FeaturePlan } from "../../checks/profile/features.js";
import type { Decoder, SliceRequest, SliceUnits } from "../../formats/format.js";
import { directPlan } from "../pack/direct.js";
import type { FeatureHashing } from "../pack/feature-hasher.js";
import type { ReadBatch } from "../pack/packer.js";
import type { WorkerPort } from "../../base/rpc.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import type { UnitFailure, UnitRequest } from "./protocol.js";
import { type UnitPool, openUnitPool } from "./unit-pool.js";

/**
 * Reads slices: in workers with the model, which score what they read (a step with a bad row comes back unscored), else in
 * workers that only decode, else, and from where a worker fails, in the main thread's decoder.
 */
export interface SliceReader extends AsyncDisposable {
  /**
   * The rows of slices, in order and each in file order, with predictions where the worker that read them has the
   * model. A batch's arrays hold until the next one is asked for. Where there are several slices, they are whole shards
   * with the same columns, types and partitions.
   * Ends normally only when exactly the rows asked for came.
   * @param rowsLeft rows that will be read, from the first of these on
   * @throws JobError SHARD_CORRUPT
   */
  read(slices: readonly SliceRequest[], rowsLeft: number, turn?: ReadTurn): AsyncGenerator<ReadBatch>;
}

/** When a slice that is not due yet may be started. Its promises reject where its rows are no longer needed. */
export interface ReadTurn {
  /** Resolves when workers have been given all rows before these: they may be given these. */
  readonly queued: Promise<unknown>;
  /** Resolves when nearly all rows before these are read: a decoder that holds more than a few batches may start. */
  readonly near: Promise<unknown>;
}

/** Workers that only decode, until `stop` is called. */
export interface DecodeWorkers {
  readonly ports: readonly WorkerPort[];
  stop(): Promise<void>;
}

/** Workers that have the model: they score what they read. */
export interface ScoringWorkers {
  readonly count: number;
  /** A port to each of them, at the first call. */
  readonly ports: () => readonly WorkerPort[];
  readonly contract: Contract;
  /** The tensors that the contract's outputs come from. */
  readonly tensors: readonly string[];
  /** Rows of a batch; it may change. */
  readonly batchRows: () => number;
  /** Which features are profiled. */
  readonly features?: FeaturePlan | undefined;
  /** How rows are hashed; undefined: they are not. */
  readonly hashing?: FeatureHashing | undefined;
}

/** Workers that only decode. */
export interface DecodeThreads {
  /** Cores that workers may take; 0: everything is read in the main thread. */
  readonly cores: number;
  readonly startDecodeWorkers: (count: number) => DecodeWorkers;
}

export interface SliceReaderOptions extends DecodeThreads {
  readonly decoder: Decoder;
  readonly memory: Pick<MemoryBudget, "batchBytes" | "heldBytes">;
  /** undefined: predictions are made elsewhere. */
  readonly scoring?: ScoringWorkers | undefined;
  /** Called once for each unit that a worker did not read to its end; the main thread reads the rest of its rows. */
  readonly onFailure?: ((failure: UnitFailure) => void) | undefined;
  /** Called once, with the reason, when workers are given no more slices. */
  readonly onGivenUp?: ((reason: string) => void) | undefined;
}

/** A slice with fewer values is read before decode workers have started. */
const largeValues = 2 ** 20;
/** More decode workers would wait for the main thread. */
const mostDecodeWorkers = 4;
/** The number of consecutive slices without a row read by workers, after which workers get no more slices. */
const fruitlessLimit = 2;

export function openSliceReader(options: SliceReaderOptions): SliceReader {
  const { decoder, cores, startDecodeWorkers, memory, scoring, onFailure, onGivenUp } = options;
  let fruitless = 0;
  let scoringPool: UnitPool | undefined;
  let decoding: { readonly pool: UnitPool; readonly workers: DecodeWorkers } | undefined;

  const isForWorkers = (slice: SliceRequest): boolean =>
    cores > 0 &&
    fruitless < fruitlessLimit &&
    (scoring !== undefined || isLarge(slice)) &&
    directPlan(slice.projection) !== undefined;

  /** Has workers read units, which score what they read if they have the model: each kind is started when it is needed. */
  const readUnits = (
    slice: SliceRequest,
    { units, constants, removed, fitting }: SliceUnits,
  ): ReturnType<UnitPool["read"]> => {
    const requestTo = (workers: number): UnitRequest => ({
      projection: slice.projection,
      constants,
      removed,
      limits: { batchBytes: memory.batchBytes, heldBytes: Math.floor(memory.heldBytes / workers) },
    });
    // A large slice takes all cores: where not each of them has a worker with the model, others decode it.
    if (scoring === undefined || (isLarge(slice) && (scoring.count < cores || fitting(cores) < cores))) {
      const most = fitting(Math.min(cores, mostDecodeWorkers));
      if (decoding === undefined) {
        const workers = startDecodeWorkers(most);
        decoding = { workers, pool: openUnitPool(workers.ports, { onFailure }) };
      }
      return decoding.pool.read(units, requestTo(decoding.workers.ports.length), most);
    }

    const { count, ports, contract, tensors, batchRows, features: plan, hashing } = scoring;
    scoringPool ??= openUnitPool(ports(), { batchRows, onFailure });
    const features = plan && { plan, firstRow: slice.firstRow ?? 0 };
    const model = { contract, tensors, batchRows: batchRows(), hashing };
    return scoringPool.read(units, { ...requestTo(count), scoring: model, features }, fitting(count));
  };

  return {
    async *read(slices, rowsLeft, turn) {
      const isAlone = slices.length === 1;
      let left = rowsLeft;
      for (const [index, slice] of slices.entries()) {
        const sharing = scoring && { workers: scoring.count, rowsLeft: left, batchRows: scoring.batchRows };
        const shared = isForWorkers(slice) ? await decoder.units(slice, { isAlone, sharing }) : undefined;
        if (shared === undefined && index === 0) {
          await turn?.near;
          yield* decoder.read(slices);
          return;
        }

        left -= slice.rowEnd - slice.rowStart;
        let { rowStart } = slice;
        if (shared !== undefined) {
          await turn?.queued; // a worker whose memory is full of later rows would never read those that are due
          if (shared.units[0]?.rowStart === rowStart) {
            rowStart = yield* readUnits(slice, shared);
          } // else the shard is not what it was: the decoder tells what is wrong with it
          fruitless = rowStart === slice.rowStart ? fruitless + 1 : 0;
          if (fruitless === fruitlessLimit) {
            onGivenUp?.(`workers read no row of ${fruitlessLimit} slices in a row`);
          }
        }
        if (rowStart < slice.rowEnd) {
          await turn?.near;
          yield* decoder.read([{ ...slice, rowStart }]);
        }
      }
    },
    async [Symbol.asyncDispose]() {
      await decoding?.workers.stop();
    },
  };
}

function isLarge({ rowStart, rowEnd, projection }: SliceRequest): boolean {
  return (rowEnd - rowStart) * valuesPerRow(projection) >= largeValues;
}
