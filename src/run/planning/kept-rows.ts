import type { Projection } from "../../binding/contract.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan, Slice } from "../../plan/plan.js";
import { spansOf } from "../../plan/spans.js";
import { coalesceSlices } from "../../scoring/coalesce-slices.js";
import type { JobContext } from "../../scoring/context.js";
import { type ReadyWindow, type SliceOfRun, windowsAhead } from "../../scoring/read-windows.js";
import { messageOf } from "../../util/errors.js";
import { leastSum, type SampledSum } from "../../util/sampling.js";

/** An input of at most so many rows and shards is counted whole: in about 0.2 s of CPU time. */
const mostWhole = { rows: 2 ** 22, shards: 128 };
/** A larger input is counted in so many places, of so many rows each. */
const places = { count: 64, rows: 2 ** 14 };
/** If fewer places than these are counted, and not all rows, they say too little about the input. */
const fewestPlaces = 16;
/** Rows that one query counts. The time limit is checked after each query. */
const queryRows = 2 ** 20;
/** No more is counted after this time, nor fetched from a store beyond these bytes. */
const most = { ms: 5000, bytes: 64 * 1024 * 1024 };

/**
 * Counts the rows of a run that `input.where` keeps: all of them, or if the run is large, those in places that are spread
 * over it. Returns how many the run has at least; undefined if an error ended the count, or if too few places were
 * counted: the estimate would be so low that almost every row would be sampled. The log then says so.
 */
export async function fewestKept(context: JobContext, plan: Plan, decoder: Decoder): Promise<number | undefined> {
  const { rows } = plan.input;
  const slices = slicesToCount(plan);
  const counted = new Map<string, SampledSum>();
  const sinceMs = context.nowMs();
  try {
    for await (const { place, read, sum } of countSlices({ context, plan, decoder, sinceMs }, slices)) {
      const before = counted.get(place) ?? { read: 0, sum: 0 };
      counted.set(place, { read: before.read + read, sum: before.sum + sum });
    }
  } catch (error) {
    context.signal.throwIfAborted();
    logUnused(context, rows, `an error ended the count (${messageOf(error)})`);
    return undefined;
  }
  if (isTooLittle(plan, [...counted.values()], slices.length)) {
    const limits = `${most.ms / 1000} s and ${most.bytes / 2 ** 20} MiB`;
    logUnused(context, rows, `only ${counted.size} of ${slices.length} places could be counted within ${limits}`);
    return undefined;
  }
  const fewest = leastSum([...counted.values()], rows);
  const took = ((context.nowMs() - sinceMs) / 1000).toFixed(2);
  context.log.debug(`input.where keeps at least ${fewest} of ${rows} rows; counting took ${took} s`);
  return fewest;
}

/** Whether too few places of all `slices` were counted. Even one place of a small input will do, if rows of it are kept. */
function isTooLittle(plan: Plan, counted: readonly SampledSum[], slices: number): boolean {
  const [read, kept] = [counted.reduce((rows, place) => rows + place.read, 0), counted.some(({ sum }) => sum > 0)];
  const wanted = isCountedWhole(plan) && kept ? 1 : Math.min(fewestPlaces, slices);
  return read < plan.input.rows && counted.length < wanted;
}

function logUnused({ log }: JobContext, rows: number, why: string): void {
  log.info(
    `the number of rows that input.where keeps is unknown, because ${why}: features are sampled as if it kept all ${rows} rows, and if it keeps few, the sample may be too small for some checks`,
  );
}

interface Counting {
  readonly context: JobContext;
  readonly plan: Plan;
  readonly decoder: Decoder;
  /** When the count began. */
  readonly sinceMs: number;
}

/** Counts slice after slice, in an order in which the first ones are spread over the run, too. */
async function* countSlices(
  { context, plan, decoder, sinceMs }: Counting,
  slices: readonly Slice[],
): AsyncGenerator<SampledSum & { readonly place: string }> {
  const { source, signal, nowMs } = context;
  const { contract, input } = plan;
  const list = contract.expressions?.list.filter(({ kind }) => kind === "where") ?? [];
  const projection: Projection = {
    ...contract,
    inputs: [],
    passthrough: [],
    expressions: contract.expressions && { ...contract.expressions, list },
  };
  const coalesced = {
    uniform: input.uniform === true,
    // The error of an estimate is computed over places, so each place is counted alone.
    shards: isCountedWhole(plan) ? source.readAhead.coalescedFiles : 1,
    rows: queryRows,
    bytes: Number.POSITIVE_INFINITY,
  };
  const limited = withinBytes(decoder);
  const isLate = (): boolean => nowMs() - sinceMs > most.ms;
  const groups = until(coalesceSlices(numbered(spread(slices)), coalesced), () => isLate() || limited.isSpent());
  for await (const window of windowsAhead({ source, decoder: limited.decoder, projection }, groups)) {
    signal.throwIfAborted();
    try {
      await window.there;
      const sum = await decoder.countKept(window.requests);
      yield { place: placeOf(window), read: window.rowEnd - window.rowStart, sum };
    } finally {
      await window.done();
    }
    if (isLate()) {
      return;
    }
  }
}

/** Names the place that a window belongs to: a store may give the rows of one place in several windows. */
function placeOf({ requests: [first] }: ReadyWindow): string {
  return JSON.stringify([first?.file.name, Math.floor((first?.rowStart ?? 0) / places.rows)]);
}

/** Items up to the first one before which `isOver` says that no more is wanted. */
function* until<T>(items: Iterable<T>, isOver: () => boolean): Generator<T> {
  for (const item of items) {
    if (isOver()) {
      return;
    }
    yield item;
  }
}

function isCountedWhole({ input: { rows, shards } }: Plan): boolean {
  return rows <= mostWhole.rows && shards.length <= mostWhole.shards;
}

/** All rows of a run, or those in places that are spread over it. */
function slicesToCount(plan: Plan): Slice[] {
  const { rows } = plan.input;
  const spans = spansOf(plan);
  if (isCountedWhole(plan)) {
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
  return Array.from({ length: Math.ceil((rowEnd - rowStart) / queryRows) }, (_, go) => {
    const from = rowStart + go * queryRows;
    return { shard, rowStart: from, rowEnd: Math.min(from + queryRows, rowEnd) };
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

/** A decoder that leaves out the windows of shards in a store that would need more bytes; `isSpent` once it would do so. */
function withinBytes(decoder: Decoder): { readonly decoder: Decoder; isSpent(): boolean } {
  let bytes = 0;
  const isSpent = (): boolean => bytes >= most.bytes;
  return {
    isSpent,
    decoder: {
      ...decoder,
      async windows(slice, windowBytes) {
        const windows = await decoder.windows(slice, windowBytes);
        return windows.filter(({ ranges }) => {
          const isWanted = !isSpent();
          bytes += isWanted ? ranges.reduce((sum, { start, end }) => sum + end - start, 0) : 0;
          return isWanted;
        });
      },
    },
  };
}
