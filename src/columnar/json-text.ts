import { assertNever } from "../util/errors.js";
import { scaleOf, withPoint } from "./decimals.js";
import { dateText, floorThousands, infiniteDay, momentText, timeText, withNanos } from "./dates-and-times.js";
import type { BytesColumn, Column, ColumnType, FixedColumn, ScalarType } from "./types.js";

/**
 * Returns a value as JSON. Lists and structs have the form that Postgres's `to_json` gives; dates, timestamps and bytes
 * are texts.
 */
export function jsonOf(type: ColumnType, column: Column, row: number): string {
  if (column.valid?.[row] === 0) {
    return "null";
  }
  if (typeof type === "string") {
    return scalarJson(type, column, row);
  }
  switch (type.kind) {
    case "decimal":
      return withPoint(unscaled(asFixed(column), row, true), type.scale);
    case "list": {
      if (column.kind !== "list") {
        throw new TypeError(`expected a list column, found a ${column.kind} column`);
      }
      const items: string[] = [];
      for (let index = column.offsets[row] ?? 0; index < (column.offsets[row + 1] ?? 0); index += 1) {
        items.push(jsonOf(type.element, column.child, index));
      }
      return `[${items.join(",")}]`;
    }
    case "struct": {
      const children = column.kind === "struct" ? column.children : [];
      const fields = type.fields.map((field, index) => {
        const child = children[index];
        if (child === undefined) {
          throw new TypeError(`the struct column lacks its field ${field.name}`);
        }
        return `${JSON.stringify(field.name)}:${jsonOf(field.type, child, row)}`;
      });
      return `{${fields.join(",")}}`;
    }
    default:
      return assertNever(type);
  }
}

/** Shows a decimal, date or time that is not NULL; undefined for other types. */
export function exactText(type: ColumnType, column: Column, row: number): string | undefined {
  if (column.valid?.[row] === 0) {
    return undefined;
  }
  if (scaleOf(type) !== undefined) {
    return jsonOf(type, column, row);
  }
  if (type !== "date32" && !(typeof type === "string" && type.startsWith("time"))) {
    return undefined;
  }
  const value = BigInt(asFixed(column).data[row] ?? 0);
  const text = JSON.parse(jsonOf(type, column, row)) as string; // in microseconds
  return withNanos(text, type.endsWith("[ns]") ? ((value % 1000n) + 1000n) % 1000n : 0n);
}

function scalarJson(type: ScalarType, column: Column, row: number): string {
  if (type === "utf8" || type === "binary") {
    const { offsets, bytes } = asBytes(column);
    const value = bytes.subarray(offsets[row], offsets[row + 1]);
    return JSON.stringify(type === "utf8" ? new TextDecoder().decode(value) : `\\x${hexOf(value)}`);
  }
  const { data } = asFixed(column);
  const value = data[row] ?? 0;
  switch (type) {
    case "bool":
      return value === 0 ? "false" : "true";
    case "float32":
    case "float64": {
      const number = type === "float32" ? shortest(Number(value)) : Number(value);
      return Object.is(number, -0) ? "-0" : Number.isFinite(number) ? String(number) : JSON.stringify(String(number));
    }
    case "uuid":
      return JSON.stringify(uuidText(data[row * 2] ?? 0, data[row * 2 + 1] ?? 0));
    case "date32":
      return JSON.stringify(dayText(Number(value)));
    case "time64[us]":
      return JSON.stringify(timeText(BigInt(value)));
    case "time64[ns]":
      return JSON.stringify(timeText(floorThousands(BigInt(value))));
    case "time64[us, zone]":
      return JSON.stringify(zonedText(BigInt(value)));
    case "timestamp[us]":
      return JSON.stringify(momentText(BigInt(value)));
    case "timestamp[ns]":
      return JSON.stringify(momentText(floorThousands(BigInt(value))));
    case "timestamp[us, UTC]":
      return JSON.stringify(`${momentText(BigInt(value))}+00:00`.replace(/^(-?infinity).*/, "$1"));
    case "interval":
      return JSON.stringify(intervalText(BigInt(data[row * 2] ?? 0), BigInt(data[row * 2 + 1] ?? 0)));
    case "int8":
    case "int16":
    case "int32":
    case "int64":
    case "uint8":
    case "uint16":
    case "uint32":
    case "uint64":
      return String(value);
    default:
      return assertNever(type);
  }
}

function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function asBytes(column: Column): BytesColumn {
  if (column.kind !== "bytes") {
    throw new TypeError(`expected a column of bytes, found a ${column.kind} column`);
  }
  return column;
}

/** Returns the number with the shortest text that reads back as the same float32: 0.1, not 0.10000000149011612. */
function shortest(value: number): number {
  for (let digits = 1; digits <= 9; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) {
      return short;
    }
  }
  return value;
}

function dayText(day: number): string {
  return Math.abs(day) === infiniteDay ? (day > 0 ? "infinity" : "-infinity") : dateText(day);
}

function uuidText(low: number | bigint, high: number | bigint): string {
  const bits = ((BigInt(high) ^ (1n << 63n)) << 64n) | BigInt(low);
  return bits
    .toString(16)
    .padStart(32, "0")
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function zonedText(value: bigint): string {
  const { micros, offsetSeconds } = splitZoned(value);
  const seconds = Math.abs(offsetSeconds);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map((part) =>
    String(part).padStart(2, "0"),
  );
  const shown = parts.slice(0, seconds % 60 !== 0 ? 3 : seconds % 3600 !== 0 ? 2 : 1);
  return `${timeText(micros)}${offsetSeconds < 0 ? "-" : "+"}${shown.join(":")}`;
}

function intervalText(low: bigint, high: bigint): string {
  const months = BigInt.asIntN(32, low);
  const days = BigInt.asIntN(32, low >> 32n);
  const micros = BigInt.asIntN(64, high);
  const seconds = withPoint(String(micros), 6);
  return `P${months}M${days}DT${seconds}S`;
}

/** DuckDB packs 40 bits of microseconds over 24 bits that hold its largest offset less the offset, in seconds. */
export function splitZoned(value: bigint): { micros: bigint; offsetSeconds: number } {
  const bits = BigInt.asUintN(64, value);
  return { micros: bits >> 24n, offsetSeconds: 57_599 - Number(bits & 0xff_ffffn) };
}

/** The decimal digits of an integer of 64 or 128 bits, with a sign. */
export function unscaled({ data, elementsPerValue }: FixedColumn, row: number, signed: boolean): string {
  if (elementsPerValue === 1) {
    return String(data[row]);
  }
  const low = BigInt(data[row * 2] ?? 0);
  const high = BigInt(data[row * 2 + 1] ?? 0);
  const bits = (high << 64n) | low;
  return String(signed ? BigInt.asIntN(128, bits) : bits);
}

export function asFixed(column: Column): FixedColumn {
  if (column.kind !== "fixed") {
    throw new TypeError(`expected a fixed column, found a ${column.kind} column`);
  }
  return column;
}
