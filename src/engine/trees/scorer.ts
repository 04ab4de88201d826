import { type Columns, columnsOf, type RankedFeature, type SetColumn } from "./columns.js";
import { type Aggregate, type Ensemble, Unsupported } from "./ensemble.js";
import type { Floats } from "./row-values.js";
import { neutralOf, writeTables } from "./tables.js";
import { openTreeMemory, type TreeMemory } from "./tree-loops.js";

/** The trees of an ensemble in this thread's WebAssembly memory. */
export interface TreeScorer extends Disposable {
  /** Features that a row must have. */
  readonly features: number;
  /**
   * Adds up the leaves of rows, block after block.
   * @param x row-major, `width` values a row, of the type that the scorer was made for
   * @param take is given the scores of rows [from, to), a list a target from its start on
   */
  score(x: Floats, width: number, take: (from: number, to: number, scores: readonly Floats[]) => void): void;
}

/** Columns of more bytes leave the cache. */
const blockBytes = 96 * 1024;
const mostBlockRows = 256;
/** What `scoreBlock` takes at once. */
const rowStep = 64;
const belowAll = -1;
const aboveAll = 2 ** 30;

/** @throws Unsupported */
export function openTreeScorer(ensemble: Ensemble, isDouble: boolean): TreeScorer {
  const memory = openTreeMemory();
  try {
    return createScorer(ensemble, isDouble, memory);
  } catch (error) {
    memory[Symbol.dispose]();
    throw error;
  }
}

function createScorer(ensemble: Ensemble, isDouble: boolean, memory: TreeMemory): TreeScorer {
  const { buffer, loops } = memory;
  const size = isDouble ? 8 : 4;
  const floats = isDouble ? Float64Array : Float32Array;
  const columns = columnsOf(ensemble, isDouble);
  if (ensemble.roots.length === 0) {
    throw new Unsupported("there are no trees");
  }
  const blockRows = rowsOfBlock(columns);
  const columnsAt = memory.take(Math.max(1, columns.count) * blockRows);
  const scoresStart = memory.take(ensemble.targets * blockRows * size);
  const columnAt = (column: number): number => columnsAt + column * blockRows;
  const scoresAt = (target: number): number => scoresStart + target * blockRows * size;
  const scores = Array.from(
    { length: ensemble.targets },
    (_, target) => new floats(buffer, scoresAt(target), blockRows),
  );
  const exits = memory.take(rowStep * 4);
  const fill = columnFiller(columns, { memory, blockRows, columnAt, isDouble });
  const table = writeTables({ ensemble, columns, memory, columnAt, scoresAt, isDouble });
  const neutral = neutralOf(ensemble);
  const how = hows[ensemble.aggregate] + (isDouble ? 4 : 0);
  const copy = rowCopier(memory, blockRows, isDouble);
  return {
    features: ensemble.nodes.features.reduce((most, feature) => Math.max(most, feature + 1), 0),
    score(x, width, take) {
      const rows = x.length / width;
      for (let from = 0; from < rows; from += blockRows) {
        const to = Math.min(rows, from + blockRows);
        const isThere = x.buffer === buffer && to - from === blockRows;
        const at = isThere ? x.byteOffset + from * width * size : copy(x.subarray(from * width, to * width), width);
        const padded = Math.ceil((to - from) / rowStep) * rowStep;
        fill(at, width * size, padded);
        for (const sums of scores) {
          sums.fill(neutral, 0, padded);
        }
        loops.scoreBlock(table.start, table.end, padded, how, exits);
        take(from, to, scores);
      }
    },
    [Symbol.dispose]() {
      memory[Symbol.dispose]();
    },
  };
}

/** Copies rows that are in other memory, or end before their block does. Returns the address of the copy. */
function rowCopier(memory: TreeMemory, blockRows: number, isDouble: boolean): (rows: Floats, width: number) => number {
  const size = isDouble ? 8 : 4;
  const floats = isDouble ? Float64Array : Float32Array;
  let block = { width: 0, at: 0 };
  return (rows, width) => {
    if (block.width < width) {
      block = { width, at: memory.take(blockRows * width * size) };
    }
    new floats(memory.buffer, block.at, blockRows * width).set(rows);
    return block.at;
  };
}

/** Aggregations by the number that `scoreBlock` takes. */
const hows: Readonly<Record<Aggregate, number>> = { SUM: 0, AVERAGE: 0, MIN: 1, MAX: 2 };

function rowsOfBlock({ count }: Columns): number {
  const rows = Math.floor(blockBytes / Math.max(1, count) / rowStep) * rowStep;
  return Math.max(rowStep, Math.min(mostBlockRows, rows));
}

interface FillerOptions {
  readonly memory: TreeMemory;
  readonly blockRows: number;
  readonly columnAt: (column: number) => number;
  readonly isDouble: boolean;
}

/** Makes the columns of rows at an address, so many bytes apart. */
function columnFiller(
  { ranked, sets }: Columns,
  { memory, blockRows, columnAt, isDouble }: FillerOptions,
): (x: number, stride: number, rows: number) => void {
  const { loops } = memory;
  const size = isDouble ? 8 : 4;
  const ranks = memory.take(blockRows * 4);
  const lay = (values: Float64Array): SearchedValues => writeSearched(memory, values, isDouble);
  const laidRanked = ranked.map((feature: RankedFeature) => ({ ...feature, ...lay(feature.thresholds) }));
  const laidSets = sets.map((set: SetColumn) => ({ ...set, ...lay(set.members) }));
  const rank = isDouble ? loops.rankDoubles : loops.rankFloats;
  const mark = isDouble ? loops.memberDoubles : loops.memberFloats;
  return (x, stride, rows) => {
    for (const { feature, at, firstHalf, columns } of laidRanked) {
      rank(x + feature * size, stride, rows, at, firstHalf, ranks);
      for (const { column, base, nanIsTrue } of columns) {
        loops.rankBytes(ranks, rows, base, nanIsTrue ? belowAll : aboveAll, columnAt(column));
      }
    }
    for (const { feature, at, firstHalf, column, nanIsTrue } of laidSets) {
      mark(x + feature * size, stride, rows, at, firstHalf, nanIsTrue ? 0 : 1, columnAt(column));
    }
  };
}

interface SearchedValues {
  readonly at: number;
  /** The size of the first half, in bytes. */
  readonly firstHalf: number;
}

/** Writes the values, padded with NaN to a power of two: no value is greater than NaN. */
function writeSearched(memory: TreeMemory, values: Float64Array, isDouble: boolean): SearchedValues {
  const size = isDouble ? 8 : 4;
  const length = 2 ** Math.max(1, Math.ceil(Math.log2(values.length + 1)));
  const at = memory.take(length * size);
  const laid = isDouble ? new Float64Array(memory.buffer, at, length) : new Float32Array(memory.buffer, at, length);
  laid.fill(Number.NaN);
  laid.set(values);
  return { at, firstHalf: (length / 2) * size };
}
