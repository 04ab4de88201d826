import type { RowRange } from "../../columnar/types.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan } from "../../plan/plan.js";
import { rowsOfSpans } from "../../plan/spans.js";
import type { JobContext } from "../../scoring/context.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";

/** The rows of a sample are read in so many places. */
const places = 20;

/** Rows spread over a table, as the engine takes them. */
export interface RowSample {
  /** The inputs of each row that can be scored. */
  readonly rows: readonly (readonly NamedTensor[])[];
  /** How many rows of the sample were read. */
  readonly read: number;
  /** The same for each place of the table, in the order of `rows`. */
  readonly places: readonly SampledPlace[];
}

/** Neighbouring rows of a sample: how many were read, and how many of them can be scored. */
export interface SampledPlace {
  readonly rows: number;
  readonly read: number;
}

export interface SampleOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** Neighbouring rows of the run that the sample is taken from. */
  readonly ranges: readonly RowRange[];
  /** How many rows to read. */
  readonly count: number;
}

/** Reads rows that are spread over ranges of a run. Nothing is asked. */
export async function sampleRows(
  context: JobContext,
  { plan, engine, decoder, ranges, count }: SampleOptions,
): Promise<RowSample> {
  const size = Math.ceil(count / places);
  const blocks = { ...plan, commitRows: size };
  const rows: (readonly NamedTensor[])[] = [];
  const collecting: Engine = {
    ...engine,
    concurrency: 1, // rows come in their order
    run({ inputs }) {
      rows.push(inputs);
      return Promise.resolve({ kind: "failed", message: "", inputs });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const sampled: SampledPlace[] = [];
  for (const block of blocksIn(ranges, size)) {
    const range = rowsOfSpans(blocks, { from: block, to: block + 1 });
    const before = rows.length;
    let read = 0;
    await scoreWithoutPublishing(
      context,
      { plan: blocks, engine: collecting, decoder, ranges: [range] },
      ({ rowStart, rowEnd }) => {
        read += rowEnd - rowStart;
      },
    );
    sampled.push({ rows: rows.length - before, read });
  }
  return { rows, read: sampled.reduce((sum, place) => sum + place.read, 0), places: sampled };
}

/** Blocks of rows in the ranges, evenly spread, as numbers of spans of `size` rows; all of them where there are few. */
function blocksIn(ranges: SampleOptions["ranges"], size: number): number[] {
  const all = ranges.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
  const found = new Set<number>();
  if (all <= places * size) {
    for (const { rowStart, rowEnd } of ranges) {
      for (let block = Math.floor(rowStart / size); block * size < rowEnd; block += 1) {
        found.add(block);
      }
    }
    return [...found];
  }
  let before = 0;
  let place = 0;
  for (const { rowStart, rowEnd } of ranges) {
    const length = rowEnd - rowStart;
    for (let at = Math.floor((all * place) / places); place < places && at < before + length; ) {
      found.add(Math.floor((rowStart + at - before) / size));
      place += 1;
      at = Math.floor((all * place) / places);
    }
    before += length;
  }
  return [...found];
}
