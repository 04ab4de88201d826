import type { Projection } from "../../binding/contract.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan, Slice } from "../../plan/plan.js";
import { spansOf } from "../../plan/spans.js";
import { coalesceSlices } from "../../scoring/coalesce-slices.js";
import type { JobContext } from "../../scoring/context.js";
import { type SliceOfRun, windowsAhead } from "../../scoring/read-windows.js";
import { messageOf } from "../../util/errors.js";
import { leastSum, type SampledSum } from "../../util/sampling-error.js";

/** An input of at most so many rows and shards is counted whole: in about 0.2 s of CPU time. */
const mostWhole = { rows: 2 ** 22, shards: 128 };
/** A larger input is counted in so many places, of so many rows each. */
const places = { count: 64, rows: 2 ** 14 };
/** Rows that are counted in one go. After each of them, the time is looked at. */
const goRows = 2 ** 20;
/** No more is counted after this time, nor fetched from a store beyond these bytes. */
const most = { ms: 5000, bytes: 64 * 1024 * 1024 };

/**
 * Counts the rows of a run that `input.where` keeps: all of them, or if the run is large, those in places that are spread
 * over it. Returns how many the run has at least. What cannot be read is not counted: scoring tells why.
 */
export async function fewestKept(context: JobContext, plan: Plan, decoder: Decoder): Promise<number> {
  const { rows } = plan.input;
  const counted: SampledSum[] = [];
  const sinceMs = context.nowMs();
  try {
    for await (const place of countPlaces(context, plan, decoder)) {
      counted.push(place);
    }
  } catch (error) {
    context.signal.throwIfAborted();
    context.log.debug(`counting the rows that input.where keeps: ${messageOf(error)}`);
  }
  const fewest = leastSum(counted, rows);
  const took = ((context.nowMs() - sinceMs) / 1000).toFixed(2);
  context.log.debug(`input.where keeps at least ${fewest} of ${rows} rows; counting took ${took} s`);
  return fewest;
}

/** Counts place after place, in an order in which the first ones are spread over the run, too. */
async function* countPlaces(context: JobContext, plan: Plan, decoder: Decoder): AsyncGenerator<SampledSum> {
  const { source, signal, nowMs } = context;
  const { contract, input } = plan;
  const list = contract.expressions?.list.filter(({ kind }) => kind === "where") ?? [];
  const projection: Projection = {
    ...contract,
    inputs: [],
    passthrough: [],
    expressions: contract.expressions && { ...contract.expressions, list },
  };
  const together = {
    uniform: input.uniform === true,
    shards: source.readAhead.coalescedFiles,
    rows: goRows,
    bytes: Number.POSITIVE_INFINITY,
  };
  const groups = coalesceSlices(numbered(spread(slicesToCount(plan))), together);
  const sinceMs = nowMs();
  for await (const window of windowsAhead({ source, decoder: withinBytes(decoder), projection }, groups)) {
    signal.throwIfAborted();
    try {
      await window.there;
      yield { read: window.rowEnd - window.rowStart, sum: await decoder.countKept(window.requests) };
    } finally {
      await window.done();
    }
    if (nowMs() - sinceMs > most.ms) {
      return;
    }
  }
}

/** All rows of a run, or those in places that are spread over it. */
function slicesToCount(plan: Plan): Slice[] {
  const { rows, shards } = plan.input;
  const spans = spansOf(plan);
  if (rows <= mostWhole.rows && shards.length <= mostWhole.shards) {
    return spans.slices({ rowStart: 0, rowEnd: rows }).flatMap(inGoes);
  }
  const found = new Map<string, Slice>();
  for (let place = 0; place < places.count; place += 1) {
    const { shard, row } = spans.locate(Math.floor((rows * (place + 0.5)) / places.count));
    const rowStart = Math.floor(row / places.rows) * places.rows;
    const rowEnd = Math.min(rowStart + places.rows, shard.rows);
    found.set(JSON.stringify([shard.uri, rowStart]), { shard, rowStart, rowEnd });
  }
  return [...found.values()];
}

function inGoes({ shard, rowStart, rowEnd }: Slice): Slice[] {
  return Array.from({ length: Math.ceil((rowEnd - rowStart) / goRows) }, (_, go) => {
    const from = rowStart + go * goRows;
    return { shard, rowStart: from, rowEnd: Math.min(from + goRows, rowEnd) };
  });
}

/** Sorts by the reversed bits of the index: the first ones of any number are spread over the whole. */
function spread<T>(all: readonly T[]): T[] {
  return [...all.entries()].toSorted(([one], [other]) => reversed(one) - reversed(other)).map(([, item]) => item);
}

function reversed(index: number): number {
  let bits = 0;
  for (let bit = 0; bit < 16; bit += 1) {
    bits = bits * 2 + ((index >>> bit) & 1);
  }
  return bits;
}

/** Numbers the rows of slices as if there were no others, so that they can be read together. */
function* numbered(slices: readonly Slice[]): Generator<SliceOfRun> {
  let rowStart = 0;
  for (const slice of slices) {
    yield { slice, rowStart };
    rowStart += slice.rowEnd - slice.rowStart;
  }
}

/** A decoder that leaves out the windows of shards in a store that would need more bytes. */
function withinBytes(decoder: Decoder): Decoder {
  let bytes = 0;
  return {
    ...decoder,
    async windows(slice, windowBytes) {
      const windows = await decoder.windows(slice, windowBytes);
      return windows.filter(({ ranges }) => {
        const isWanted = bytes < most.bytes;
        bytes += isWanted ? ranges.reduce((sum, { start, end }) => sum + end - start, 0) : 0;
        return isWanted;
      });
    },
  };
}
