import type { ColumnType, BytesColumn, Column, FixedColumn, NamedColumn, ScalarType } from "./types.js";
import { assertNever } from "../base/errors.js";

/** Returns the digits of a whole number with a decimal point before the last `scale` of them: "-12345" as "-123.45". */
export function withPoint(digits: string, scale: number): string {
  if (scale === 0) {
    return digits;
  }
  const sign = digits.startsWith("-") ? "-" : "";
  const padded = digits.slice(sign.length).padStart(scale + 1, "0");
  return `${sign}${padded.slice(0, -scale)}.${padded.slice(-scale)}`;
}

/** Returns the largest whole number of units of 10^-scale that is not above a number, such as 125 of 1.259 for scale 2. */
export function floorToScale(value: number, scale: number): bigint {
  const [, whole = "0", fraction = "", exponent = "0"] =
    /^(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/.exec(String(value)) ?? [];
  const shift = scale - fraction.length + Number(exponent);
  const digits = BigInt(whole + fraction);
  return shift >= 0 ? digits * 10n ** BigInt(shift) : digits / 10n ** BigInt(-shift);
}

/** The digits of a decimal behind its point; undefined for other types. */
export function scaleOf(type: ColumnType | undefined): number | undefined {
  return typeof type === "object" && type.kind === "decimal" ? type.scale : undefined;
}

/** DuckDB's infinite date. DuckDB stores infinity as the largest value, and minus infinity as its negation. */
export const infiniteDay = 0x7fff_ffff;
export const infiniteMicros = 0x7fff_ffff_ffff_ffffn;

export function isInfinite(micros: bigint): boolean {
  return micros === infiniteMicros || micros === -infiniteMicros;
}

/** Converts nanoseconds to microseconds, rounded down, as a clock does. */
export function floorThousands(nanos: bigint): bigint {
  const micros = nanos / 1000n;
  return nanos % 1000n < 0n ? micros - 1n : micros;
}

/** "2026-01-31", with more digits for years after 9999. Years before 1 are written as in ISO 8601. */
function dateText(day: number): string {
  // http://howardhinnant.github.io/date_algorithms.html#civil_from_days
  const shifted = day + 719_468;
  const era = Math.floor(shifted / 146_097);
  const ofEra = shifted - era * 146_097;
  const yearOfEra = Math.floor(
    (ofEra - Math.floor(ofEra / 1460) + Math.floor(ofEra / 36_524) - Math.floor(ofEra / 146_096)) / 365,
  );
  const ofYear = ofEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const shiftedMonth = Math.floor((5 * ofYear + 2) / 153);
  const dayOfMonth = ofYear - Math.floor((153 * shiftedMonth + 2) / 5) + 1;
  const month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  const sign = year < 0 ? "-" : "";
  return `${sign}${pad(Math.abs(year), 4)}-${pad(month, 2)}-${pad(dayOfMonth, 2)}`;
}

/** The microseconds of a day; a time may be 24:00:00. */
export const microsPerDay = 86_400_000_000n;

/** "12:34:56.789012"; the fraction only where there is one. What is no time of a day is a number with its unit. */
function timeText(micros: bigint): string {
  if (micros < 0n || micros > microsPerDay) {
    return `${micros} microseconds`;
  }
  const seconds = Number(micros / 1_000_000n);
  const fraction = Number(micros % 1_000_000n);
  const clock = `${pad(Math.floor(seconds / 3600), 2)}:${pad(Math.floor(seconds / 60) % 60, 2)}:${pad(seconds % 60, 2)}`;
  return fraction === 0 ? clock : `${clock}.${pad(fraction, 6).replace(/0+$/, "")}`;
}

/** Adds the nanoseconds below a microsecond, 0 to 999, to a text that ends in a time of day in microseconds. */
function withNanos(text: string, nanos: bigint): string {
  if (nanos === 0n || !/\d$/.test(text)) {
    return text;
  }
  const [clock = "", fraction = ""] = text.split(".");
  return `${clock}.${fraction.padEnd(6, "0")}${String(nanos).padStart(3, "0")}`;
}

function momentText(micros: bigint): string {
  if (isInfinite(micros)) {
    return micros > 0n ? "infinity" : "-infinity";
  }
  const inDay = ((micros % microsPerDay) + microsPerDay) % microsPerDay;
  return `${dateText(Number((micros - inDay) / microsPerDay))}T${timeText(inDay)}`;
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, "0");
}

/** The members of the object of JSON that a row of predictions is for whoever looks it up, wherever it comes from. */
export function membersOf(columns: readonly NamedColumn[]): (row: number) => string {
  const keys = columns.map(({ name }) => JSON.stringify(name));
  return (row) => columns.map(({ type, column }, index) => `${keys[index]}:${jsonOf(type, column, row)}`).join(",");
}

/** A value as JSON. Lists and structs are as Postgres's `to_json` gives them; dates, timestamps and bytes are texts. */
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

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

function scalarJson(type: ScalarType, column: Column, row: number): string {
  if (type === "utf8" || type === "binary") {
    const { offsets, bytes } = asBytes(column);
    const value = bytes.subarray(offsets[row], offsets[row + 1]);
    return JSON.stringify(type === "utf8" ? decoder.decode(value) : `\\x${hexOf(value)}`);
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
  const hasFew = Math.fround(Number(value.toPrecision(6))) === value;
  for (let digits = hasFew ? 1 : 7; digits <= 9; digits += 1) {
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
