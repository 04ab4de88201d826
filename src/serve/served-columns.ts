import { isRecord } from "../base/guards.js";
import { nullColumn } from "../columns/columns.js";
import { encodeTexts } from "../columns/tensor.js";
import { type Column, type ColumnType, layoutOfType, type NamedColumn, showType } from "../columns/types.js";
import { allocate, type Values } from "../columns/values.js";
import {
  boundColumns,
  type ColumnRef,
  type Contract,
  featureColumns,
  withColumns,
} from "../models/binding/contract.js";
import { isCalendarDate } from "../run/plan/identity.js";
import { floorThousands } from "../columns/value-text.js";
import { assertNever, JobError } from "../base/errors.js";
import { RequestError, shownJson } from "./request-error.js";

/* What the rows of a request must have, and how values of JSON become columns of the types that the run had. */

/** A column of the input, as a request has it. */
export interface ServedColumn {
  readonly name: string;
  /** The column, then the fields that lead to the value. */
  readonly path: readonly string[];
  readonly type: ColumnType;
  /** Whether the model needs it; else it is only carried, and may be left out. */
  readonly isNeeded: boolean;
}

/** How rows of requests are scored. */
export interface ServedContract {
  /** The contract of the run, in which every column that is not computed is a column of the request. */
  readonly contract: Contract;
  readonly columns: readonly ServedColumn[];
}

/** @throws JobError USAGE for a column whose type a request cannot have */
export function servedContract(planned: Contract): ServedContract {
  const columns = new Map<string, ServedColumn>();
  const needed = new Set(featureColumns(planned).map(({ name }) => name));
  const add = ({ name, path, type, computed }: ColumnRef, isNeeded: boolean): void => {
    if (computed === true || columns.get(name)?.isNeeded === true) {
      return;
    }
    if (isNeeded && !isServable(type)) {
      throw new JobError("USAGE", `serving column \`${name}\`: a request cannot have a ${showType(type)}`, {
        hint: "make it of columns of numbers, texts, dates or timestamps, by input.columns",
      });
    }
    columns.set(name, { name, path, type, isNeeded });
  };
  for (const ref of boundColumns(planned)) {
    add(ref, needed.has(ref.name));
  }
  for (const ref of planned.expressions?.columns ?? []) {
    add(ref, true);
  }
  const unknown = planned.expressions?.list.flatMap(({ uses }) => uses).find((name) => !columns.has(name));
  if (unknown !== undefined) {
    throw new JobError("USAGE", `serving column \`${unknown}\`: its type is none that a request can have`, {
      hint: "leave it out of input.columns and input.where",
    });
  }

  const { expressions } = planned;
  const contract: Contract = {
    ...planned,
    inputs: planned.inputs.map((binding) => withColumns(binding, inRequest)),
    passthrough: planned.passthrough.map(({ column, source }) => ({ column, source: inRequest(source) })),
    expressions: expressions === null ? null : { ...expressions, folders: [] },
    lineage: undefined,
    reuse: undefined,
  };
  return { contract, columns: [...columns.values()] };
}

function inRequest(ref: ColumnRef): ColumnRef {
  return ref.computed === true ? ref : { name: ref.name, path: [ref.name], type: ref.type };
}

function isServable(type: ColumnType): boolean {
  if (typeof type === "object") {
    return type.kind === "list"
      ? isServable(type.element)
      : type.kind === "decimal" || type.fields.every((field) => isServable(field.type));
  }
  return type !== "binary" && type !== "interval" && !type.startsWith("time64");
}

/** A row of a request. */
export type JsonRow = Readonly<Record<string, unknown>>;

/** @throws RequestError 400 for a needed column that a row lacks, and for a value that is not of its type */
export function columnsOfRows(
  columns: readonly ServedColumn[],
  rows: readonly JsonRow[],
  numbers: readonly number[],
): Map<string, Column> {
  return new Map(
    columns.map((column) => {
      const { name, path, type, isNeeded } = column;
      const values = rows.map((row, index) => {
        const value = valueAtPath(row, path);
        if (value === undefined && isNeeded) {
          throw new RequestError(400, `row ${numbers[index]} has no column \`${name}\`; a missing value is null`);
        }
        return value ?? null;
      });
      const isCarried = !isNeeded && (!isServable(type) || values.every((value) => value === null));
      return [name, isCarried ? nullColumn(type, rows.length) : columnOfValues(column, values)];
    }),
  );
}

export function valueAtPath(row: JsonRow, path: readonly string[]): unknown {
  return path.reduce<unknown>((holder, field) => {
    const isHolder = typeof holder === "object" && holder !== null && Object.hasOwn(holder, field);
    return isHolder ? (holder as Readonly<Record<string, unknown>>)[field] : holder === null ? null : undefined;
  }, row);
}

/** A column of values of JSON. @throws RequestError 400 */
export function columnOfValues({ name, type }: Pick<NamedColumn, "name" | "type">, values: readonly unknown[]): Column {
  const requireEach = (fits: (value: unknown, row: number) => boolean): void => {
    const row = values.findIndex((value, at) => value !== null && !fits(value, at));
    if (row !== -1) {
      const wanted = showType(type);
      const article = /^[aeiou]/.test(wanted) ? "an" : "a";
      throw new RequestError(
        400,
        `column \`${name}\` is ${shownJson(values[row])}, expected ${article} ${wanted} or null`,
      );
    }
  };
  const layout = layoutOfType(type);
  const valid = values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined;
  switch (layout.kind) {
    case "fixed": {
      const { element, elementsPerValue } = layout;
      const data = allocate(element, values.length * elementsPerValue);
      requireEach((value, row) => put(type, data, row, value));
      return { kind: "fixed", elementsPerValue, data, valid };
    }
    case "bytes":
      requireEach((value) => typeof value === "string");
      return { kind: "bytes", ...encodeTexts(values.map((value) => (value ?? "") as string)), valid };
    case "list": {
      requireEach(Array.isArray);
      const lists = values.map((value) => (value ?? []) as readonly unknown[]);
      const offsets = new Uint32Array(values.length + 1);
      for (const [row, { length }] of lists.entries()) {
        offsets[row + 1] = (offsets[row] ?? 0) + length;
      }
      return { kind: "list", offsets, child: columnOfValues({ name, type: layout.element }, lists.flat()), valid };
    }
    case "struct": {
      requireEach((value) => isRecord(value) && !Array.isArray(value));
      const rows = values.map((value) => (value ?? {}) as Readonly<Record<string, unknown>>);
      const children = layout.fields.map((field) =>
        columnOfValues(
          { name, type: field.type },
          rows.map((row) => valueAtPath(row, [field.name]) ?? null),
        ),
      );
      return { kind: "struct", rowCount: values.length, children, valid };
    }
    default:
      return assertNever(layout);
  }
}

/** Puts a value into its place; false: it is not of the type. */
function put(type: ColumnType, data: Values, row: number, value: unknown): boolean {
  if (type === "float32" || type === "float64") {
    const isText = typeof value === "string" && /^(?:NaN|-?Infinity)$/.test(value);
    data[row] = isText || typeof value === "number" ? Number(value) : 0;
    return isText || (typeof value === "number" && (Number.isNaN(value) || Number.isFinite(data[row])));
  }
  if (typeof type === "object") {
    return type.kind === "decimal" && putDecimal(type, data, row, value);
  }
  if (/^u?int\d/.test(type)) {
    const whole = wholeOf(value);
    if (whole === undefined) {
      return false;
    }
    const element = type.endsWith("64") ? whole : Number(whole);
    data[row] = element; // wraps around where it does not fit
    return data[row] === element;
  }
  if (type === "bool") {
    data[row] = value === true ? 1 : 0;
    return typeof value === "boolean";
  }
  if (typeof value !== "string") {
    return false;
  }
  if (type === "uuid") {
    const isUuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);
    const bits = BigInt(isUuid ? `0x${value.replaceAll("-", "")}` : 0);
    data[row * 2] = bits; // its lower half
    data[row * 2 + 1] = (bits >> 64n) ^ (1n << 63n);
    return isUuid;
  }
  return putMoment(type, data, row, value);
}

/** A whole number, or the text of one, which may have more digits than numbers of JSON keep. */
function wholeOf(value: unknown): bigint | undefined {
  if (typeof value === "string") {
    return /^-?\d{1,20}$/.test(value) ? BigInt(value) : undefined;
  }
  return typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : undefined;
}

const isoMoment = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?)?$/;
const msPerDay = 86_400_000;

/** A date; or a date and a time in ISO 8601, with a zone where the type is an instant. */
function putMoment(type: string, data: Values, row: number, value: string): boolean {
  const [, day, clock = "00:00:00", fraction = "", zone] = isoMoment.exec(value) ?? [];
  const ms = Date.parse(`${day}T${clock}${zone ?? "Z"}`);
  const hasZone = zone !== undefined || value === day;
  const fits = type === "date32" ? value === day : type.endsWith("UTC]") ? hasZone : zone === undefined;
  if (day === undefined || !fits || !isCalendarDate(day) || Number.isNaN(ms)) {
    return false;
  }
  if (type === "date32") {
    data[row] = ms / msPerDay;
  } else {
    const nanos = BigInt(ms) * 1_000_000n + BigInt(fraction.padEnd(9, "0"));
    const isNanos = type.endsWith("[ns]");
    data[row] = isNanos ? nanos : floorThousands(nanos);
    return !isNanos || data[row] === nanos; // years 1677 to 2262
  }
  return true;
}

function putDecimal(
  { precision, scale }: { readonly precision: number; readonly scale: number },
  data: Values,
  row: number,
  value: unknown,
): boolean {
  const text = typeof value === "number" || typeof value === "string" ? String(value) : "";
  const [, sign = "", whole = "", fraction = ""] = /^(-?)(\d{1,38})(?:\.(\d{1,38}))?$/.exec(text) ?? [];
  const digits = `${whole}${fraction.padEnd(scale, "0")}`.replace(/^0+/, "");
  if (whole === "" || fraction.length > scale || digits.length > precision) {
    return false;
  }
  const unscaled = BigInt(`${sign}${digits === "" ? "0" : digits}`);
  if (precision > 18) {
    data[row * 2] = unscaled; // its lower half
    data[row * 2 + 1] = unscaled >> 64n;
  } else {
    data[row] = precision > 9 ? unscaled : Number(unscaled);
  }
  return true;
}
