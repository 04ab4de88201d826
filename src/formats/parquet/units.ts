import { type ColumnRef, boundColumns } from "../../binding/contract.js";
import type { Column } from "../../columnar/types.js";
import type { Piece } from "../../columnar/piece.js";
import { openPageMemory, type PageMemory } from "./pages/page-memory.js";
import { type ColumnRows, openColumn, type ReadBytes } from "./pages/column.js";
import { isUnpacked } from "./pages/codecs.js";
import type { Footer } from "./footer/footer.js";
import { groupsBetween } from "./footer/groups.js";
import { averageBytes, longValueBytes } from "./long-values.js";
import { type PageLimits, type StoredColumn, storageOf } from "./pages/storage.js";
import { columnsInFile } from "../planned-columns.js";
import type { SliceRequest, Unit, UnitSharing } from "../port.js";
import { cutRows, unitRows } from "../unit-rows.js";

/** Neighbouring rows of one row group. Plain JSON. */
export interface ParquetUnit extends Unit {
  readonly format: "parquet";
  readonly group: string;
  readonly path: string;
  /** The row group's first row, as a row of the shard. */
  readonly groupStart: number;
  readonly columns: readonly StoredColumn[];
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
  for (const { group, groupStart, rowStart: from, rowEnd: to } of groupsBetween(footer, { rowStart, rowEnd })) {
    const columns = storedColumns(footer, { group, names, refs, limits });
    if (columns === undefined) {
      return undefined;
    }
    const { path } = file;
    const common = { format: "parquet", group: `${groupStart} ${path}`, path, groupStart, columns } as const;
    const most = unitRows(mostRows, from - rowStart, sharing);
    for (const part of cutRows({ from, to }, most, sharing)) {
      units.push({ ...common, rowStart: part.from, rowEnd: part.to });
    }
  }
  return units;
}

interface WantedColumns extends Pick<UnitCut, "limits"> {
  readonly group: number;
  readonly names: readonly string[];
  readonly refs: ReadonlyMap<string, ColumnRef>;
}

function storedColumns(
  { rowGroups, leaves }: Footer,
  { group, names, refs, limits }: WantedColumns,
): StoredColumn[] | undefined {
  const { chunks = [], rows = 0 } = rowGroups[group] ?? {};
  // As the schema names them: what a chunk calls itself, DuckDB does not ask.
  const leafIndices = new Map(leaves.map(({ path }, index) => [path.join("\n").toLowerCase(), index]));
  if (leafIndices.size !== leaves.length || chunks.length !== leaves.length) {
    return undefined; // DuckDB renames columns of the same name: which one is meant is for it to know
  }
  const isLong = names.some(
    (name) => averageBytes(chunks[leafIndices.get(name.toLowerCase()) ?? -1]) >= longValueBytes,
  );
  const columns: StoredColumn[] = [];
  for (const name of names) {
    const index = leafIndices.get(name.toLowerCase()) ?? -1;
    const [chunk, leaf, ref] = [chunks[index], leaves[index], refs.get(name)];
    const storage = leaf === undefined || ref === undefined ? undefined : storageOf(ref.type, leaf);
    if (
      chunk?.path[0] !== name ||
      leaf?.path[0] !== name ||
      chunk.encrypted ||
      chunk.isElsewhere ||
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
      isOptional: leaf.definition === 1,
      codec: chunk.codec,
      start: chunk.start,
      end: chunk.start + chunk.compressedBytes,
      unpackedBytes: chunk.uncompressedBytes,
      rows,
      limits,
    });
  }
  return columns;
}

export interface UnitPiecesOptions {
  readonly read: ReadBytes;
  readonly scratch: (size: number) => Uint8Array;
  /** The memory of each column's pages. */
  readonly pageMemories: PageMemory[];
}

/** Reads units, one after the other. */
export interface UnitPieces {
  /**
   * The rows of a unit, in order, cut where a page ends. A piece holds until the next one is asked for.
   * @throws RangeError
   */
  read(unit: ParquetUnit): Generator<Piece>;
}

/** Columns of a unit's row group, which were read up to the unit's end. */
interface OpenGroup {
  readonly unit: ParquetUnit;
  readonly columns: readonly (readonly [name: string, rows: ColumnRows])[];
}

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

/** Whether a unit continues the row group of the one before it, with the same columns. */
function goesOn(before: ParquetUnit, unit: ParquetUnit): boolean {
  return (
    before.group === unit.group &&
    before.rowEnd <= unit.rowStart &&
    before.columns.length === unit.columns.length &&
    before.columns.every(({ name, type, start }, index) => {
      const other = unit.columns[index];
      return name === other?.name && type === other.type && start === other.start;
    })
  );
}
