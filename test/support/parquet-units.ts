import { dirname } from "node:path";
import { createColumnBuilder } from "#src/columns/columns.js";
import type { Column, FixedColumn, SourceColumn } from "#src/columns/types.js";
import { elementOf } from "#src/columns/values.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { plainColumns, type ChunkColumn } from "#src/formats/parquet/pages/storage.js";
import { type ParquetUnit, parquetUnits, openParquetUnitReader } from "#src/formats/parquet/units.js";
import type { Decoder, SliceRequest } from "#src/formats/format.js";
import type { Projection } from "#src/models/binding/contract.js";
import { emptyContract } from "./batches.js";
import { plenty } from "./memory.js";

/** Each column's values by row, as text that tells every bit; null: NULL. */
export type Shown = Readonly<Record<string, readonly (string | null)[]>>;

/** Rows [from, to) of a file; default: all. */
export type RowBounds = readonly [from: number, to: number];

/** A chunk of DOUBLE values that may be NULL, not packed by any codec. */
export function doubleChunk(bytes: number, rows: number): ChunkColumn {
  return {
    name: "x",
    type: "float64",
    storage: { kind: "fixed", stored: "float64", element: "float64" },
    isOptional: true,
    list: undefined,
    codec: 0,
    start: 0,
    end: bytes,
    unpackedBytes: bytes,
    rows,
    values: rows,
    limits: plenty,
  };
}

export function carryAll(columns: readonly Pick<SourceColumn, "name" | "type">[]): Projection {
  return {
    ...emptyContract,
    passthrough: columns.flatMap(({ name, type }) =>
      type === undefined ? [] : [{ column: name, source: { name, path: [name], type } }],
    ),
  };
}

/** The slice with all columns of a file whose types are read without DuckDB; undefined: there are none. */
export async function wholeSlice(path: string, bounds?: RowBounds): Promise<SliceRequest | undefined> {
  const { leaves, rows } = await readParquetFooter({ path });
  const columns = leaves.flatMap((leaf) => plainColumns([leaf]) ?? []);
  const [rowStart, rowEnd] = bounds ?? [0, rows];
  const file = { path, name: path };
  return columns.length === 0
    ? undefined
    : { file, rowStart, rowEnd, projection: carryAll(columns), partitions: new Map() };
}

/**
 * What is read without DuckDB; undefined: it is left to DuckDB from the start. Where `random` is given, units are cut
 * anywhere, and read by two readers. @throws where it is left in the middle
 */
export async function readUnits(slice: SliceRequest, random?: () => number): Promise<Shown | undefined> {
  const units = parquetUnits(await readParquetFooter(slice.file), slice, { limits: plenty });
  if (units === undefined) {
    return undefined;
  }
  const builders = buildersOf(slice);
  const readers = [openParquetUnitReader(), openParquetUnitReader()] as const;
  let due = slice.rowStart;
  try {
    for (const unit of random === undefined ? units : units.flatMap((one) => cutAnywhere(one, random))) {
      const one = readers[random === undefined || random() < 0.5 ? 0 : 1];
      for await (const { rowStart, rowEnd, columns } of one.read(unit, slice.projection)) {
        if (rowStart !== due || rowEnd <= rowStart || rowEnd > unit.rowEnd) {
          throw new TypeError(`rows ${rowStart}..${rowEnd} came where row ${due} was due`);
        }
        due = rowEnd;
        for (const [name, builder] of builders) {
          builder.append(columns.get(name) as Column, 0, rowEnd - rowStart);
        }
      }
    }
  } finally {
    for (const one of readers) {
      one.close();
    }
  }
  if (due !== slice.rowEnd) {
    throw new TypeError(`rows up to ${due} came, of ${slice.rowEnd}`);
  }
  return shown(builders);
}

function cutAnywhere(unit: ParquetUnit, random: () => number): ParquetUnit[] {
  const units: ParquetUnit[] = [];
  for (let { rowStart } = unit; rowStart < unit.rowEnd; rowStart = units.at(-1)?.rowEnd ?? unit.rowEnd) {
    const rowEnd = Math.min(unit.rowEnd, rowStart + 1 + Math.floor(random() ** 2 * (unit.rowEnd - unit.rowStart)));
    units.push({ ...unit, rowStart, rowEnd });
  }
  return units;
}

/** Reads a file that is in memory. @throws RangeError beyond its end */
export function reader(bytes: Uint8Array): (target: Uint8Array, position: number) => void {
  return (target, position) => {
    if (position < 0 || position + target.length > bytes.length) {
      throw new RangeError("the file ends in the middle");
    }
    target.set(bytes.subarray(position, position + target.length));
  };
}

/** The same slice through DuckDB. @throws where it is damaged */
export async function readByDuckDb(decoder: Decoder, slice: SliceRequest): Promise<Shown> {
  const builders = buildersOf(slice);
  for await (const batch of decoder.read([slice])) {
    for (const [index, builder] of [...builders.values()].entries()) {
      builder.append(batch.carried[index] as Column, 0, batch.rowCount);
    }
  }
  return shown(builders);
}

/** It reads small slices by DuckDB only. */
export function openDuckDb(path: string): Decoder {
  return openParquetDecoder({ threads: 1, folders: [dirname(path)], timezone: "UTC" });
}

type Builders = Map<string, ReturnType<typeof createColumnBuilder>>;

function buildersOf({ projection, rowStart, rowEnd }: SliceRequest): Builders {
  return new Map(
    projection.passthrough.map(({ source }) => [source.name, createColumnBuilder(source.type, rowEnd - rowStart)]),
  );
}

function shown(builders: Builders): Shown {
  return Object.fromEntries(
    [...builders].map(([name, builder]) => [name, showColumn(builder.finish(), builder.rowCount)]),
  );
}

function showColumn(column: Column, rows: number): (string | null)[] {
  return Array.from({ length: rows }, (_, row) => (column.valid?.[row] === 0 ? null : showValue(column, row)));
}

function showValue(column: Column, row: number): string {
  if (column.kind === "bytes") {
    return Buffer.from(column.bytes.subarray(column.offsets[row], column.offsets[row + 1])).toString("latin1");
  }
  if (column.kind === "list") {
    const [from = 0, to = 0] = column.offsets.subarray(row, row + 2);
    const { child } = column;
    const isWhole = child.kind === "fixed" && child.valid?.subarray(from, to).includes(0) !== true;
    const places = Array.from({ length: isWhole ? 0 : to - from }, (_, index) => from + index);
    return isWhole
      ? `[${showValues(child, from, to)}]`
      : `[${places.map((place) => (child.valid?.[place] === 0 ? "null" : showValue(child, place))).join(", ")}]`;
  }
  if (column.kind !== "fixed") {
    throw new TypeError("structs are not read so");
  }
  return showValues(column, row, row + 1);
}

function showValues({ data, elementsPerValue }: FixedColumn, from: number, to: number): string {
  const values = data.subarray(from * elementsPerValue, to * elementsPerValue);
  const bits = Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString("hex");
  return `${elementOf(data)} ${String(values)} ${bits}`;
}
