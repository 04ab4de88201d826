import {
  type CastRules,
  type ColumnRef,
  type DecodedBinding,
  decodedInputs,
  type Projection,
} from "../../binding/contract.js";
import type { Column, ColumnType, DecodedInput, FixedColumn, RecordBatch } from "../../columnar/types.js";
import type { Piece } from "../../columnar/piece.js";
import { type Cast, castOf } from "./cast.js";
import { castLists, listMatrix } from "./lists.js";
import { packMatrix, reusing, type TakeValues } from "./matrix.js";
import { sliceColumn } from "../../columnar/column-rows.js";

/** Makes batches of the decoded columns, without DuckDB. */
export interface DirectPlan {
  /** @param constants columns from folder names, of at least as many rows */
  batch(piece: Piece, rows: { readonly from: number; readonly to: number }, constants: Constants): RecordBatch;
}

export type Constants = ReadonlyMap<string, Column>;

interface Rows {
  readonly from: number;
  readonly to: number;
}

type PackInput = (columns: Piece["columns"], rows: Rows) => DecodedInput;

/**
 * Plans how a projection is made without DuckDB; undefined: a part of it needs DuckDB.
 * @param take memory for matrices; default: each holds until the next batch is made
 */
export function directPlan(projection: Projection, take?: TakeValues): DirectPlan | undefined {
  const { passthrough, expressions } = projection;
  if (expressions !== null || passthrough.some(({ source }) => !isPlain(source))) {
    return undefined;
  }
  const packers: PackInput[] = [];
  for (const binding of decodedInputs(projection)) {
    const packer = inputPacker(binding, projection, take);
    if (packer === undefined) {
      return undefined;
    }
    packers.push(packer);
  }
  return {
    batch: ({ columns }, rows, constants) => ({
      rowCount: rows.to - rows.from,
      inputs: packers.map((make) => make(columns, rows)),
      carried: passthrough.map(({ source }) =>
        source.partition === true
          ? sliceColumn(columnOf(constants, source), 0, rows.to - rows.from)
          : sliceColumn(columnOf(columns, source), rows.from, rows.to),
      ),
    }),
  };
}

/** A column, not a field of one. */
function isPlain({ path, computed }: ColumnRef): boolean {
  return path.length === 1 && computed !== true;
}

function inputPacker(binding: DecodedBinding, rules: CastRules, take: TakeValues | undefined): PackInput | undefined {
  if (binding.kind === "matrix") {
    return matrixPacker(binding, rules, take ?? reusing());
  }
  const { column } = binding;
  if (!isPlain(column) || column.partition === true) {
    return undefined;
  }
  if (binding.kind === "text") {
    return (columns, { from, to }) => {
      const texts = sliceColumn(columnOf(columns, column), from, to);
      if (texts.kind !== "bytes") {
        throw new TypeError("a text column is read as bytes");
      }
      return texts;
    };
  }
  const element = elementType(column.type);
  const cast = element === undefined ? undefined : castOf(element, binding.dtype, rules);
  if (cast === undefined) {
    return undefined;
  }
  const { missing } = rules;
  return binding.kind === "padded"
    ? (columns, rows) => castLists(binding.dtype, columnOf(columns, column), cast, { ...rows, missing })
    : (columns, rows) => listMatrix(binding, columnOf(columns, column), cast, { ...rows, missing });
}

function elementType(type: ColumnType): ColumnType | undefined {
  return typeof type === "object" && type.kind === "list" ? type.element : undefined;
}

function matrixPacker(
  { columns: refs, dtype }: Extract<DecodedBinding, { kind: "matrix" }>,
  rules: CastRules,
  take: TakeValues,
): PackInput | undefined {
  const casts: Cast[] = [];
  for (const ref of refs) {
    const cast = isPlain(ref) && ref.partition !== true ? castOf(ref.type, dtype, rules) : undefined;
    if (cast === undefined) {
      return undefined;
    }
    casts.push(cast);
  }
  return (columns, rows) =>
    packMatrix(
      dtype,
      refs.map((ref, index) => ({ column: numbersOf(columns, ref), cast: casts[index] ?? "copy" })),
      rows,
      { missing: rules.missing, take },
    );
}

function numbersOf(columns: Piece["columns"], ref: ColumnRef): FixedColumn {
  const column = columnOf(columns, ref);
  if (column.kind !== "fixed") {
    throw new TypeError(`column ${ref.name} has no numbers`);
  }
  return column;
}

function columnOf(columns: ReadonlyMap<string, Column>, { path }: ColumnRef): Column {
  const column = columns.get(path[0] ?? "");
  if (column === undefined) {
    throw new RangeError(`column ${path[0]} was not read`);
  }
  return column;
}
