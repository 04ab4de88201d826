import type { SliceOfRun } from "./read-windows.js";

export interface CoalesceLimits {
  /** Whether all shards have the same columns, of the same types. */
  readonly uniform: boolean;
  /** Shards that one query reads. */
  readonly shards: number;
  /** Rows of a group, at most. */
  readonly rows: number;
  /** Bytes of its shards, at most; default: 16 MiB. */
  readonly bytes?: number;
}

/** Bytes of a group, at most: reading a larger one takes longer than starting a query for it. */
const coalescedBytes = 16 * 1024 * 1024;

/**
 * Groups neighbouring slices that one query reads: whole, small shards of one folder. A query costs milliseconds, as
 * many for a hundred rows as for ten thousand. If committed rows are between two slices, a new group begins: the rows
 * of a group are numbered without a gap.
 */
export function* coalesceSlices(slices: Iterable<SliceOfRun>, limits: CoalesceLimits): Generator<SliceOfRun[]> {
  let group: SliceOfRun[] = [];
  let left = nothingFits;
  for (const one of slices) {
    const { shard } = one.slice;
    const alone = !limits.uniform || !isWhole(one);
    const isSmallEnough =
      shard.rows <= left.rows && shard.sizeBytes <= left.bytes && folderOf(shard.uri) === left.folder;
    const fits = isSmallEnough && one.rowStart === endOf(group.at(-1));
    if (group.length > 0 && (alone || !fits || group.length >= limits.shards)) {
      yield group;
      group = [];
    }
    if (group.length === 0) {
      left = alone
        ? nothingFits
        : { rows: limits.rows, bytes: limits.bytes ?? coalescedBytes, folder: folderOf(shard.uri) };
    }
    left = { ...left, rows: left.rows - shard.rows, bytes: left.bytes - shard.sizeBytes };
    group.push(one);
  }
  if (group.length > 0) {
    yield group;
  }
}

/** The run's number of the row after a slice. */
function endOf(one: SliceOfRun | undefined): number | undefined {
  return one === undefined ? undefined : one.rowStart + one.slice.rowEnd - one.slice.rowStart;
}

const nothingFits: { readonly rows: number; readonly bytes: number; readonly folder: string | undefined } = {
  rows: 0,
  bytes: 0,
  folder: undefined,
};

function isWhole({ slice: { shard, rowStart, rowEnd } }: SliceOfRun): boolean {
  return rowStart === 0 && rowEnd === shard.rows;
}

/** Folders give columns their values: those of one are the same for all of its shards. */
function folderOf(uri: string): string {
  return uri.slice(0, uri.lastIndexOf("/") + 1);
}
