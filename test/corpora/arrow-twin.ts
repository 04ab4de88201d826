import type { Column, ColumnType } from "#src/columns/types.js";
import { assertNever } from "#src/base/errors.js";

/** A column's value as plain JSON: numbers and bytes as text, so that two readings can be compared. */
export type Plain = string | null | readonly Plain[] | { readonly [name: string]: Plain };

/** The integration format of Arrow's own tests: https://arrow.apache.org/docs/format/Integration.html */
export interface Twin {
  readonly schema: { readonly fields: readonly TwinField[] };
  readonly batches: readonly { readonly count: number; readonly columns: readonly TwinColumn[] }[];
  readonly dictionaries?: readonly {
    readonly id: number;
    readonly data: { readonly columns: readonly TwinColumn[] };
  }[];
}

interface TwinField {
  readonly name: string;
  readonly type: {
    readonly name: string;
    readonly unit?: string;
    readonly precision?: string;
    readonly listSize?: number;
  };
  readonly children: readonly TwinField[];
  readonly dictionary?: { readonly id: number };
}

interface TwinColumn {
  readonly name: string;
  readonly count: number;
  readonly VALIDITY?: readonly number[];
  readonly OFFSET?: readonly (number | string)[];
  readonly SIZE?: readonly (number | string)[];
  readonly DATA?: readonly (number | string | boolean)[];
  readonly VIEWS?: readonly { SIZE: number; INLINED?: string; BUFFER_INDEX?: number; OFFSET?: number }[];
  readonly VARIADIC_DATA_BUFFERS?: readonly string[];
  readonly children?: readonly TwinColumn[];
}

/** The values of a column, all batches one after the other. */
export function twinValues({ schema, batches, dictionaries = [] }: Twin, index: number): Plain[] {
  const field = schema.fields[index] as TwinField;
  const columns = new Map(dictionaries.map(({ id, data }) => [id, data.columns[0] as TwinColumn]));
  return batches.flatMap(({ count, columns: own }) =>
    Array.from({ length: count }, (_, row) => twinValue(field, own[index] as TwinColumn, row, columns)),
  );
}

function twinValue(
  field: TwinField,
  column: TwinColumn,
  row: number,
  dictionaries: ReadonlyMap<number, TwinColumn>,
): Plain {
  if (column.VALIDITY?.[row] === 0) {
    return null;
  }
  const { type, children, dictionary } = field;
  if (dictionary !== undefined) {
    const { dictionary: _, ...values } = field;
    return twinValue(values, dictionaries.get(dictionary.id) as TwinColumn, Number(column.DATA?.[row]), dictionaries);
  }
  const inner = (index: number, at: number): Plain =>
    twinValue(children[index] as TwinField, column.children?.[index] as TwinColumn, at, dictionaries);
  const range = (from: number, to: number): Plain[] =>
    Array.from({ length: to - from }, (_, element) => inner(0, from + element));
  switch (type.name) {
    case "struct":
      return Object.fromEntries(children.map(({ name }, index) => [name, inner(index, row)]));
    case "list":
    case "largelist":
      return range(Number(column.OFFSET?.[row]), Number(column.OFFSET?.[row + 1]));
    case "listview":
    case "largelistview": {
      const from = Number(column.OFFSET?.[row]);
      return range(from, from + Number(column.SIZE?.[row]));
    }
    case "fixedsizelist": {
      const size = type.listSize ?? 0;
      return range(row * size, row * size + size);
    }
    case "utf8view":
    case "binaryview":
      return viewValue(column, row, type.name === "utf8view");
    default:
      return leafText(type, column.DATA?.[row]);
  }
}

function viewValue({ VIEWS = [], VARIADIC_DATA_BUFFERS = [] }: TwinColumn, row: number, isText: boolean): string {
  const view = VIEWS[row];
  if (view?.INLINED !== undefined) {
    return isText ? view.INLINED : view.INLINED.toLowerCase();
  }
  const start = view?.OFFSET ?? 0;
  const bytes = Buffer.from(VARIADIC_DATA_BUFFERS[view?.BUFFER_INDEX ?? 0] ?? "", "hex").subarray(
    start,
    start + (view?.SIZE ?? 0),
  );
  return bytes.toString(isText ? "utf8" : "hex");
}

const toMicros: Readonly<Record<string, bigint>> = { SECOND: 1_000_000n, MILLISECOND: 1000n };
const dayMs = 86_400_000;

function leafText(type: TwinField["type"], value: number | string | boolean | undefined): string {
  switch (type.name) {
    case "floatingpoint":
      return String(type.precision === "DOUBLE" ? Number(value) : Math.fround(Number(value)));
    case "bool":
      return String(value === true || value === 1);
    case "binary":
    case "largebinary":
    case "fixedsizebinary":
      return String(value).toLowerCase();
    case "date":
      return String(type.unit === "DAY" ? value : Math.floor(Number(value) / dayMs));
    case "time":
    case "timestamp":
      return String(BigInt(String(value)) * (toMicros[type.unit ?? ""] ?? 1n));
    default:
      return String(value);
  }
}

/** What was read, in the same form. */
export function plainValue(type: ColumnType, column: Column, row: number): Plain {
  if (column.valid?.[row] === 0) {
    return null;
  }
  switch (column.kind) {
    case "bytes": {
      const bytes = Buffer.from(column.bytes.subarray(column.offsets[row], column.offsets[row + 1]));
      return bytes.toString(type === "utf8" ? "utf8" : "hex");
    }
    case "list": {
      const element = typeof type === "object" && type.kind === "list" ? type.element : "binary";
      const [from = 0, to = 0] = column.offsets.subarray(row, row + 2);
      return Array.from({ length: to - from }, (_, index) => plainValue(element, column.child, from + index));
    }
    case "struct": {
      const fields = typeof type === "object" && type.kind === "struct" ? type.fields : [];
      return Object.fromEntries(
        fields.map((field, index) => [field.name, plainValue(field.type, column.children[index] as Column, row)]),
      );
    }
    case "fixed": {
      const value = column.data[row * column.elementsPerValue];
      if (type === "uuid") {
        const words = [BigInt(column.data[row * 2 + 1] ?? 0) ^ (1n << 63n), BigInt(value ?? 0)];
        return words.map((word) => word.toString(16).padStart(16, "0")).join("");
      }
      if (column.elementsPerValue === 2) {
        return String(BigInt.asIntN(128, (BigInt(column.data[row * 2 + 1] ?? 0) << 64n) | BigInt(value ?? 0)));
      }
      return type === "bool" ? String(value === 1) : String(value);
    }
    default:
      return assertNever(column);
  }
}
