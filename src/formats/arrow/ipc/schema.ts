import {
  byteField,
  type FlatTable,
  intField,
  longField,
  shortField,
  tableField,
  tablesField,
  textField,
} from "./flatbuffer.js";

/** A field of an Arrow schema: a column, or an element of one. */
export interface ArrowField {
  readonly name: string;
  readonly type: ArrowType;
  readonly children: readonly ArrowField[];
  /** Values are indices of this type into the dictionary of this number. */
  readonly dictionary: { readonly id: number; readonly index: ArrowType & { readonly kind: "int" } } | undefined;
  /** The name of an extension type. */
  readonly extension: string | undefined;
}

type TimeUnit = "s" | "ms" | "us" | "ns";

export type ArrowType =
  | { readonly kind: "int"; readonly bits: 8 | 16 | 32 | 64; readonly signed: boolean }
  | { readonly kind: "float"; readonly bits: 16 | 32 | 64 }
  | { readonly kind: "decimal"; readonly precision: number; readonly scale: number; readonly bits: 32 | 64 | 128 | 256 }
  | { readonly kind: "date"; readonly unit: "day" | "ms" }
  | { readonly kind: "time"; readonly unit: TimeUnit; readonly bits: 32 | 64 }
  | { readonly kind: "timestamp"; readonly unit: TimeUnit; readonly zone: string | undefined }
  | { readonly kind: "duration"; readonly unit: TimeUnit }
  | { readonly kind: "interval"; readonly unit: string }
  | { readonly kind: "bytes"; readonly text: boolean; readonly large: boolean }
  | { readonly kind: "view"; readonly text: boolean }
  | { readonly kind: "fixedBytes"; readonly width: number }
  | { readonly kind: "list"; readonly large: boolean }
  | { readonly kind: "listView"; readonly large: boolean }
  | { readonly kind: "fixedList"; readonly width: number }
  | { readonly kind: "union"; readonly dense: boolean }
  | { readonly kind: "null" | "bool" | "struct" | "map" | "runs" };

export interface ArrowSchema {
  readonly fields: readonly ArrowField[];
  readonly metadataKeys: readonly string[];
  readonly bigEndian: boolean;
}

/** Fields of a schema, with those inside others: tables may be shared, so bytes alone do not bound them. */
const fieldsLimit = 100_000;
const depthLimit = 64;

/** @throws RangeError where it is damaged */
export function readSchema(table: FlatTable): ArrowSchema {
  const count = { left: fieldsLimit };
  return {
    bigEndian: shortField(table, 0) !== 0,
    fields: Array.from(tablesField(table, 1), (field) => readField(field, count, 0)),
    metadataKeys: Array.from(tablesField(table, 2), (pair) => textField(pair, 0) ?? ""),
  };
}

function readField(table: FlatTable, count: { left: number }, depth: number): ArrowField {
  count.left -= 1;
  if (count.left < 0 || depth > depthLimit) {
    throw new RangeError(`a schema of more than ${fieldsLimit} fields, or ${depthLimit} levels`);
  }
  const encoding = tableField(table, 4);
  const pairs = Array.from(tablesField(table, 6), (pair) => [textField(pair, 0), textField(pair, 1)] as const);
  return {
    name: textField(table, 0) ?? "",
    type: readType(byteField(table, 2), tableField(table, 3)),
    children: Array.from(tablesField(table, 5), (child) => readField(child, count, depth + 1)),
    dictionary: encoding === undefined ? undefined : readEncoding(encoding),
    extension: pairs.find(([key]) => key === "ARROW:extension:name")?.[1],
  };
}

function readEncoding(table: FlatTable): NonNullable<ArrowField["dictionary"]> {
  const indexType = tableField(table, 1);
  const index = indexType === undefined ? ({ kind: "int", bits: 32, signed: true } as const) : readInt(indexType);
  return { id: longField(table, 0), index };
}

function readInt(table: FlatTable): ArrowType & { kind: "int" } {
  return { kind: "int", bits: oneOf(intField(table, 0), [8, 16, 32, 64]), signed: byteField(table, 1) !== 0 };
}

const units = ["s", "ms", "us", "ns"] as const;

function readType(number: number, found: FlatTable | undefined): ArrowType {
  if (found === undefined) {
    throw new RangeError("a field has no type");
  }
  return simpleTypes[number] ?? readMeasured(number, found);
}

/** Types without parameters: their number is enough. */
const simpleTypes: Readonly<Record<number, ArrowType>> = {
  1: { kind: "null" },
  4: { kind: "bytes", text: false, large: false },
  5: { kind: "bytes", text: true, large: false },
  6: { kind: "bool" },
  12: { kind: "list", large: false },
  13: { kind: "struct" },
  17: { kind: "map" },
  19: { kind: "bytes", text: false, large: true },
  20: { kind: "bytes", text: true, large: true },
  21: { kind: "list", large: true },
  22: { kind: "runs" },
  23: { kind: "view", text: false },
  24: { kind: "view", text: true },
  25: { kind: "listView", large: false },
  26: { kind: "listView", large: true },
};

function readMeasured(number: number, table: FlatTable): ArrowType {
  switch (number) {
    case 2:
      return readInt(table);
    case 3:
      return { kind: "float", bits: pick(shortField(table, 0), [16, 32, 64]) };
    case 7: {
      const bits = oneOf(intField(table, 2, 128), [32, 64, 128, 256]);
      return { kind: "decimal", precision: intField(table, 0), scale: intField(table, 1), bits };
    }
    case 8:
      return { kind: "date", unit: pick(shortField(table, 0, 1), ["day", "ms"]) };
    case 9:
      return { kind: "time", unit: unitOf(table, 1), bits: oneOf(intField(table, 1, 32), [32, 64]) };
    case 10:
      return { kind: "timestamp", unit: unitOf(table, 0), zone: textField(table, 1) };
    case 11:
      return { kind: "interval", unit: pick(shortField(table, 0), ["year_month", "day_time", "month_day_nano"]) };
    case 14:
      return { kind: "union", dense: shortField(table, 0) === 1 };
    case 15:
      return { kind: "fixedBytes", width: notNegative(intField(table, 0)) };
    case 16:
      return { kind: "fixedList", width: notNegative(intField(table, 0)) };
    case 18:
      return { kind: "duration", unit: unitOf(table, 1) };
    default:
      throw new RangeError(`a type of number ${number}, which does not exist`);
  }
}

function unitOf(table: FlatTable, otherwise: number): TimeUnit {
  return pick(shortField(table, 0, otherwise), units);
}

function notNegative(width: number): number {
  if (width < 0) {
    throw new RangeError(`values of ${width} elements`);
  }
  return width;
}

function pick<T>(index: number, values: readonly T[]): T {
  const value = values[index];
  if (value === undefined) {
    throw new RangeError(`${index} where one of ${values.join(", ")} is due`);
  }
  return value;
}

function oneOf<T extends number>(value: number, values: readonly T[]): T {
  return pick(values.indexOf(value as T), values);
}
