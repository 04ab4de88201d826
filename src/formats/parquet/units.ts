import { type ColumnRef, boundColumns } from "../../models/binding/contract.js";
import { type Column, showType, type Piece } from "../../columns/types.js";
import { bytesPerElement } from "../../columns/values.js";
import { openPageMemory, type PageMemory } from "./pages/page-memory.js";
import { openColumn } from "./pages/column.js";
import type { ColumnRows, ReadInto } from "./pages/page-values.js";
import { isUnpacked } from "./pages/page-header.js";
import { type Footer, type GroupRows, groupsBetween } from "./footer.js";
import { averageBytes, chunksOf, longValueBytes, listUnitBytes } from "./long-values.js";
import { type PageLimits, type ChunkColumn, storageOf } from "./pages/storage.js";
import { columnsInFile } from "../planned-columns.js";
import type { SliceRequest, Unit, UnitSharing, UnitReader } from "../format.js";
import { cutRows, unitRows } from "../unit-sizes.js";
import { closeSync, openSync } from "node:fs";
import { areHere, releaseMemory, takeMemory } from "../../columns/loops/vectors.js";
import { readFully } from "../read-fully.js";

/** Neighbouring rows of one row group. Plain JSON. */
export interface ParquetUnit extends Unit {
  readonly format: "parquet";
  readonly path: string;
  /** The row group's first row, as a row of the shard. */
  readonly groupStart: number;
  readonly columns: readonly ChunkColumn[];
}

/** Rows of a unit: larger row groups are cut. Each thread that reads some of a page unpacks all of it. */
const mostRows = 128 * 1024;

export interface UnitCut {
  /** What one worker may hold. */
  readonly limits: PageLimits;
  readonly sharing?: UnitSharing | undefined;
}

/** Cuts a slice into units; undefined: a part of it needs DuckDB. */
export function parquetUnits(
  footer: Footer,
  { file, rowStart, rowEnd, projection }: Omit<SliceRequest, "partitions">,
  { limits, sharing }: UnitCut,
): ParquetUnit[] | undefined {
  const names = columnsInFile(projection);
  const refs = new Map(boundColumns(projection).map((ref) => [ref.path[0] ?? "", ref]));
  const units: ParquetUnit[] = [];
  for (const rows of groupsBetween(footer, { rowStart, rowEnd })) {
    const { group, groupStart, rowStart: from, rowEnd: to } = rows;
    const columns = storedColumns(footer, { group, names, refs, limits });
    const pageBytes = largestListPage(rows, projection);
    if (columns === undefined || pageBytes > limits.pageBytes) {
      return undefined;
    }
    const { path } = file;
    // Where units share a page, the thread that has unpacked it should read them; else they are read in their order,
    // so that no thread waits with rows that are due late.
    const isPageShared = pageBytes === 0 || pageBytes > listUnitBytes;
    const key = isPageShared ? `${groupStart} ${path}` : undefined;
    const common = { format: "parquet", group: key, path, groupStart, columns } as const;
    const most = unitRows(isPageShared ? mostRows : fittingRows(columns), from - rowStart, sharing);
    for (const part of cutRows({ from, to }, most, sharing)) {
      units.push({ ...common, rowStart: part.from, rowEnd: part.to });
    }
  }
  return units;
}

/** The size of the largest page of lists, as far as it was looked up; 0: the slice reads no lists. */
function largestListPage({ chunks }: GroupRows, projection: SliceRequest["projection"]): number {
  return chunksOf(chunks, { projection }).reduce((largest, { pageBytes = 0 }) => Math.max(largest, pageBytes), 0);
}

function fittingRows(columns: readonly ChunkColumn[]): number {
  const rowBytes = columns.reduce(
    (sum, { storage, list, values, rows }) =>
      list === undefined || storage.kind !== "fixed" ? sum : sum + (values / rows) * bytesPerElement(storage.element),
    0,
  );
  return Math.max(1, Math.min(mostRows, Math.floor(listUnitBytes / Math.max(1, rowBytes))));
}

interface WantedColumns extends Pick<UnitCut, "limits"> {
  readonly group: number;
  readonly names: readonly string[];
  readonly refs: ReadonlyMap<string, ColumnRef>;
}

function storedColumns(
  { rowGroups, leaves }: Footer,
  { group, names, refs, limits }: WantedColumns,
): ChunkColumn[] | undefined {
  const { chunks = [], rows = 0 } = rowGroups[group] ?? {};
  // The paths are those of the schema, since DuckDB ignores the paths that the chunks state.
  const indices = new Map(leaves.map(({ path }, index) => [path[0], index]));
  const isLong = names.some((name) => averageBytes(chunks[indices.get(name) ?? -1]) >= longValueBytes);
  const columns: ChunkColumn[] = [];
  for (const name of names) {
    const index = indices.get(name) ?? -1;
    const [chunk, leaf, ref] = [chunks[index], leaves[index], refs.get(name)];
    const storage = leaf === undefined || ref === undefined ? undefined : storageOf(ref.type, leaf);
    if (
      leaf === undefined ||
      chunk?.path[0] !== name ||
      chunk.encrypted ||
      chunk.isElsewhere ||
      (leaf.list !== undefined && chunk.hasOtherEncodings) ||
      !isUnpacked(chunk.codec, { isLong }) ||
      ref === undefined ||
      storage === undefined
    ) {
      return undefined;
    }
    columns.push({
      name,
      type: ref.type,
      storage,
      isOptional: leaf.definition > 0,
      list: leaf.list,
      codec: chunk.codec,
      start: chunk.start,
      end: chunk.start + chunk.compressedBytes,
      unpackedBytes: chunk.uncompressedBytes,
      rows,
      values: chunk.values,
      limits,
    });
  }
  return columns;
}

interface UnitPiecesOptions {
  readonly read: ReadInto;
  readonly scratch: (size: number) => Uint8Array;
  readonly pageMemories: PageMemory[];
}

interface UnitPieces {
  /** In order, cut where a page ends. A piece holds until the next one is asked for. @throws RangeError */
  read(unit: ParquetUnit): Generator<Piece>;
}

/** Columns of a unit's row group, which were read up to the unit's end. */
interface OpenGroup {
  readonly unit: ParquetUnit;
  readonly columns: readonly (readonly [name: string, rows: ColumnRows])[];
}

/** @public so that tests see it */
export function openUnitPieces({ read, scratch, pageMemories }: UnitPiecesOptions): UnitPieces {
  /** What the last unit has left open, in the middle of its row group. */
  let left: OpenGroup | undefined;
  const columnsOf = (unit: ParquetUnit): OpenGroup["columns"] =>
    unit.columns.map((column, index) => {
      const pageMemory = (pageMemories[index] ??= openPageMemory());
      return [column.name, openColumn(column, { read, scratch, pageMemory })];
    });
  return {
    *read(unit) {
      const before = left !== undefined && goesOn(left.unit, unit) ? left : undefined;
      const columns = before?.columns ?? columnsOf(unit);
      left = undefined; // until all rows of the unit were read
      for (const [, column] of columns) {
        column.skip(unit.rowStart - (before?.unit.rowEnd ?? unit.groupStart));
      }
      for (let rowStart = unit.rowStart; rowStart < unit.rowEnd; ) {
        const rows = columns.reduce((fewest, [, column]) => Math.min(fewest, column.ahead()), unit.rowEnd - rowStart);
        const values = new Map(columns.map(([name, column]): [string, Column] => [name, column.take(rows)]));
        yield { rowStart, rowEnd: rowStart + rows, columns: values };
        rowStart += rows;
      }
      left = { unit, columns };
    },
  };
}

function goesOn(before: ParquetUnit, unit: ParquetUnit): boolean {
  return (
    before.path === unit.path &&
    before.groupStart === unit.groupStart &&
    before.rowEnd <= unit.rowStart &&
    before.columns.length === unit.columns.length &&
    before.columns.every(({ name, type, start }, index) => {
      const other = unit.columns[index];
      return name === other?.name && showType(type) === showType(other.type) && start === other.start;
    })
  );
}

/**
 * Reads units of Parquet shards: pages are unpacked into memory that is used again. Without WebAssembly no unit is read
 * (RangeError): DuckDB reads instead.
 */
export function openParquetUnitReader(): UnitReader {
  const pageMemories: PageMemory[] = [];
  let packed = takeMemory(64 * 1024);
  const hasLoops = areHere([packed]);
  let file: OpenFile | undefined;
  const pieces = openUnitPieces({
    pageMemories,
    scratch(size) {
      if (packed.length < size) {
        releaseMemory([packed]);
        packed = new Uint8Array(); // there may be no memory for more
        packed = takeMemory(size);
      }
      return packed;
    },
    read(bytes, start) {
      if (file === undefined) {
        throw new Error("a page is read when its unit is through");
      }
      if (readFully(file.number, bytes, start) < bytes.length) {
        throw new RangeError(`${file.path} ends before byte ${start + bytes.length}`);
      }
    },
  });
  return {
    *read(unit) {
      const parquetUnit = unit as ParquetUnit; // the format says so
      const { path } = parquetUnit;
      if (!hasLoops) {
        throw new RangeError("a thread without WebAssembly memory");
      }
      const opened = { number: openSync(path, "r"), path };
      file = opened;
      try {
        yield* pieces.read(parquetUnit);
      } finally {
        file = undefined;
        closeSync(opened.number);
      }
    },
    close() {
      releaseMemory([packed]);
      for (const pageMemory of pageMemories.splice(0)) {
        pageMemory.close();
      }
    },
  };
}

interface OpenFile {
  readonly number: number;
  readonly path: string;
}
