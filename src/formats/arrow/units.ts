import { valuesPerRow, type Projection } from "../../models/binding/contract.js";
import { decodedRowBytes } from "../../models/binding/row-bytes.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { batchesBetween, type BatchLimits, cutPieces } from "./batches.js";
import { type OpenArrow, openBytesHere, openShards } from "./shards.js";
import type { SliceRequest, Unit, UnitSharing, UnitReader } from "../format.js";
import { unitRows } from "../unit-sizes.js";
import { releaseMemory, takeMemory } from "../../columns/loops/vectors.js";
import type { Piece } from "../../columns/types.js";
import { plannedColumns } from "../planned-columns.js";

/** Neighbouring rows of an Arrow shard of which the whole file is on this machine. Plain JSON. */
interface ArrowUnit extends Unit {
  readonly format: "arrow";
  readonly path: string;
  readonly limits: BatchLimits;
}

/**
 * Values of a unit: batches are read together until there are as many, or as many rows as `unitRows` says. Batches are not cut,
 * since one may be compressed.
 */
const mostValues = 2 ** 21;

interface ArrowUnitOptions {
  readonly limits: BatchLimits;
  readonly sharing?: UnitSharing | undefined;
}

/**
 * Returns how many of `workers` can read a slice at once. Each holds a record batch that is compressed as a whole; texts
 * do not count, since their bytes are not known before they are unpacked.
 */
export function batchWorkers(
  { index }: OpenArrow,
  slice: Pick<SliceRequest, "rowStart" | "rowEnd" | "projection">,
  { workers, memory: { openPagesBytes } }: { readonly workers: number; readonly memory: MemoryBudget },
): number {
  const rowBytes = decodedRowBytes(slice.projection);
  let largest = 1;
  for (const { rows, isCompressed } of batchesBetween(index, slice)) {
    largest = Math.max(largest, isCompressed ? rows * rowBytes : 0);
  }
  return Math.max(1, Math.min(workers, Math.floor(openPagesBytes / largest)));
}

/** Cuts a slice; undefined: the shard is not on this machine as a whole. */
export function arrowUnits(
  { index, known }: OpenArrow,
  { file, rowStart, rowEnd, projection }: Omit<SliceRequest, "partitions">,
  { limits, sharing }: ArrowUnitOptions,
): ArrowUnit[] | undefined {
  if (file.remote !== undefined || known !== undefined) {
    return undefined;
  }
  const common = { format: "arrow", group: undefined, path: file.path, limits } as const;
  const mostRows = mostValues / valuesPerRow(projection);
  const units: ArrowUnit[] = [];
  for (const batch of batchesBetween(index, { rowStart, rowEnd })) {
    const from = Math.max(rowStart, batch.rowStart);
    const to = Math.min(rowEnd, batch.rowStart + batch.rows);
    const last = units.at(-1);
    const due = last && unitRows(mostRows, last.rowStart - rowStart, sharing);
    if (last !== undefined && due !== undefined && last.rowEnd - last.rowStart < due) {
      units[units.length - 1] = { ...last, rowEnd: to };
    } else {
      units.push({ ...common, rowStart: from, rowEnd: to });
    }
  }
  return units;
}

/** Reads units of Arrow shards: values are read into memory that is used again. */
export function openArrowUnitReader(): UnitReader {
  const open = openShards(openBytesHere);
  return {
    read: (unit, projection) => arrowRows(unit as ArrowUnit, projection, open), // the format says so
    close() {
      // Each unit gives its memory back.
    },
  };
}

async function* arrowRows(
  unit: ArrowUnit,
  projection: Projection,
  open: ReturnType<typeof openShards>,
): AsyncGenerator<Piece> {
  const lent: Uint8Array<ArrayBuffer>[] = [];
  const lend = (bytes: number): Uint8Array<ArrayBuffer> => {
    const memory = takeMemory(bytes);
    lent.push(memory);
    return memory;
  };
  await using shard = await open({ path: unit.path, name: unit.path });
  const request = { ...unit, columns: plannedColumns(projection), known: shard.known, lend };
  try {
    for await (const piece of cutPieces(shard.bytes, shard.index, request)) {
      yield piece;
      releaseMemory(lent.splice(0));
    }
  } finally {
    releaseMemory(lent);
  }
}
