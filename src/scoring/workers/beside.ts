import { valuesPerRow } from "../../binding/contract.js";
import type { ScoredBatch } from "../../packing/scored.js";
import type { Column } from "../../columnar/types.js";
import { directPlan } from "../../packing/direct/plan.js";
import type { Unit } from "./decode-protocol.js";
import { unitGuest } from "./guest-url.js";
import { type DecodeThreads, openDecodeThreads, startThreads } from "./decode-threads.js";
import { hasFolderColumns } from "../../formats/planned-columns.js";
import type { ScoringThreads, SliceRequest, Turn } from "../../formats/port.js";

/** Slices that other threads decode, while this one does something else. */
export interface BesideReader extends AsyncDisposable {
  /**
   * The rows of a slice, as far as they can be read so; returns the row that is due then. A batch holds until the
   * next one is asked for. What is wrong with a shard is not told: whoever reads on will meet it.
   */
  read(
    slice: SliceRequest,
    how: SliceUnits,
    when: { readonly scoring?: ScoringThreads | undefined; readonly turn?: Turn | undefined },
  ): AsyncGenerator<ScoredBatch, number>;
}

export interface SliceUnits {
  /** undefined: they cannot be read so. */
  readonly units: () => Promise<readonly Unit[] | undefined>;
  /** Columns from folder names, of one row; asked for where there are any. */
  readonly constants: () => Promise<ReadonlyMap<string, Column>>;
  /** How many of so many threads there is memory for. */
  readonly fitting: (threads: number) => number;
}

/** Fewer values are read before a thread has started, and before others could help. */
const largeValues = 2 ** 20;
/** More would wait for the main thread. */
const mostThreads = 4;
/** Slices of which no row came, one after the other: the others will be no better. */
const vainLimit = 2;

export function openBeside(cores: number): BesideReader {
  /** By what they score for; undefined: for nobody, in threads of our own. */
  const opened = new Map<ScoringThreads["host"] | undefined, DecodeThreads>();
  let stop: (() => Promise<void>) | undefined;
  let inVain = 0;

  const decodeOnly = (count: number): DecodeThreads => {
    const known = opened.get(undefined);
    if (known !== undefined) {
      return known;
    }
    const started = startThreads(count);
    stop = started.stop;
    const threads = openDecodeThreads(started.lines);
    opened.set(undefined, threads);
    return threads;
  };
  const decodeAndScore = ({ host, batchRows }: ScoringThreads): DecodeThreads => {
    const threads = opened.get(host) ?? openDecodeThreads(host(unitGuest), batchRows);
    opened.set(host, threads);
    return threads;
  };
  return {
    async *read({ rowStart, rowEnd, projection }, { units: unitsOf, constants, fitting }, { scoring, turn }) {
      const isLarge = (rowEnd - rowStart) * valuesPerRow(projection) >= largeValues;
      // Where not each core has a thread that scores, and can decode, some do that alone.
      const isScored = scoring !== undefined && (!isLarge || (scoring.threads >= cores && fitting(cores) === cores));
      const isServed = cores > 0 && (isLarge || isScored) && inVain < vainLimit;
      const units = isServed && directPlan(projection) !== undefined ? await unitsOf() : undefined;
      if (units === undefined) {
        return rowStart;
      }
      const threads = isScored ? decodeAndScore(scoring) : decodeOnly(fitting(Math.min(cores, mostThreads)));
      const request = { projection, constants: hasFolderColumns(projection) ? await constants() : new Map() };
      await turn?.queued; // a thread that is full of later rows would never come to those that are due
      const reached = yield* threads.read(
        units,
        isScored ? { ...request, scoring: { ...plain(scoring), batchRows: scoring.batchRows() } } : request,
      );
      inVain = reached === rowStart ? inVain + 1 : 0;
      return reached;
    },
    async [Symbol.asyncDispose]() {
      await stop?.();
    },
  };
}

/** What can be sent to another thread. */
function plain({ contract, tensors }: ScoringThreads): Pick<ScoringThreads, "contract" | "tensors"> {
  return { contract, tensors };
}
