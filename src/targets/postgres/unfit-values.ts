import type { BytesColumn, Column, ColumnType, OutputRows } from "../../columns/types.js";
import type { UnfitValue } from "../target.js";
import { microsPerDay } from "../../columns/value-text.js";
import { hasDay, hasMoment, mostDimensions, withoutBigInts, vectorsOf } from "./copy-binary.js";
import type { PgType, TargetColumn } from "./table.js";

/**
 * Finds values that Postgres would refuse in the middle of a COPY: at most one a row, in row order. Values are checked
 * only where their type does not ensure that they fit.
 */
export function unfitRows(
  { columns, rowCount }: OutputRows,
  targets: readonly Pick<TargetColumn, "type">[],
): UnfitValue[] {
  const unfit = new Map<number, UnfitValue>();
  for (const [index, { name, type, column }] of columns.entries()) {
    const target = targets[index]?.type;
    const report: Report = (row, found) => {
      if (!unfit.has(row)) {
        unfit.set(row, { row, column: name, found });
      }
    };
    if (target !== undefined) {
      nulls(column, target, rowCount, report);
      collect(type, column, { target, rowCount }, report);
    }
  }
  return [...unfit.values()].toSorted((a, b) => a.row - b.row);
}

function nulls({ valid }: Column, { notNull }: TargetColumn["type"], rowCount: number, report: Report): void {
  if (notNull === false || valid === undefined) {
    return;
  }
  const why = notNull === "key" ? "in a column of output.postgres.key" : "where the table's column is NOT NULL";
  for (let row = valid.indexOf(0); row >= 0 && row < rowCount; row = valid.indexOf(0, row + 1)) {
    report(row, `NULL, ${why}`);
  }
}

type Report = (row: number, found: string) => void;

interface Place {
  readonly target: PgType;
  readonly rowCount: number;
}

/** Texts inside a value that becomes JSON are quoted: they need not be JSON themselves. */
const partOfJson: PgType = { name: "text", array: false, maxLength: undefined, decimal: undefined };

function collect(type: ColumnType, column: Column, place: Place, report: Report): void {
  const { target, rowCount } = place;
  switch (column.kind) {
    case "bytes":
      if (type === "utf8") {
        texts(column, place, report);
      }
      break;
    case "fixed":
      moments(type, column, rowCount, report);
      break;
    case "list": {
      if (target.name === "vector") {
        vectors(column, target, rowCount, report);
        break;
      }
      const rowOf = rowFinder(column.offsets, column.valid, rowCount);
      const element = typeof type === "object" && type.kind === "list" ? type.element : type;
      const inner = target.array ? { ...target, array: false } : partOfJson;
      collect(
        element,
        column.child,
        { ...place, target: inner, rowCount: column.offsets[rowCount] ?? 0 },
        (index, found) => {
          const row = rowOf(index);
          if (row !== undefined) {
            report(row, found);
          }
        },
      );
      break;
    }
    case "struct":
      for (const [index, child] of column.children.entries()) {
        const field = typeof type === "object" && type.kind === "struct" ? type.fields[index]?.type : undefined;
        if (field !== undefined) {
          collect(field, child, { ...place, target: partOfJson }, (row, found) => {
            if (column.valid?.[row] !== 0) {
              report(row, found);
            }
          });
        }
      }
      break;
  }
}

/** undefined where that row is NULL. */
function rowFinder(
  offsets: Uint32Array,
  valid: Uint8Array | undefined,
  rowCount: number,
): (index: number) => number | undefined {
  return (index) => {
    let low = 0;
    let high = rowCount;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((offsets[middle + 1] ?? 0) > index) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low < rowCount && (offsets[low] ?? 0) <= index && valid?.[low] !== 0 ? low : undefined;
  };
}

const shownCharacters = 60;

function texts({ offsets, bytes, valid }: BytesColumn, { target, rowCount }: Place, report: Report): void {
  const end = offsets[rowCount] ?? 0;
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const shown = (row: number): string => {
    const value = text.subarray(offsets[row], offsets[row + 1]).toString("utf8");
    return JSON.stringify(value.length > shownCharacters ? `${value.slice(0, shownCharacters)}…` : value);
  };
  // One native search over all rows: there is almost never a match.
  const rowOf = rowFinder(offsets, valid, rowCount);
  for (let at = text.indexOf(0, offsets[0] ?? 0); at >= 0 && at < end; ) {
    const row = rowOf(at);
    if (row !== undefined) {
      report(row, `${shown(row)}, and text in Postgres cannot hold \\u0000`);
    }
    at = text.indexOf(0, row === undefined ? at + 1 : (offsets[row + 1] ?? end));
  }
  if (target.name === "json" || target.name === "jsonb") {
    for (let row = 0; row < rowCount; row += 1) {
      const fault =
        valid?.[row] === 0 ? undefined : jsonFault(text.toString("utf8", offsets[row], offsets[row + 1]), target.name);
      if (fault !== undefined) {
        report(row, `${shown(row)}, ${fault}`);
      }
    }
  }
  const { maxLength } = target;
  if (maxLength === undefined) {
    return;
  }
  for (let row = 0; row < rowCount; row += 1) {
    const [from, to] = [offsets[row] ?? 0, offsets[row + 1] ?? 0];
    if (to - from > maxLength && valid?.[row] !== 0 && charactersIn(text, from, to) > maxLength) {
      report(row, `${shown(row)}, longer than ${maxLength} characters`);
    }
  }
}

/** A character 0, or half of a surrogate pair, as `JSON.stringify` escapes them. */
const unheld = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

function jsonFault(text: string, name: PgType["name"]): string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "which is no JSON"; // the server would not say in which row
  }
  // json keeps the text as it is; jsonb keeps its meaning.
  return name === "jsonb" && text.includes("\\u") && unheld.test(JSON.stringify(value))
    ? "which jsonb cannot hold: a character 0 or half a surrogate pair"
    : undefined;
}

/** Finds lists that are no vectors of the table: of another length, or with an element that is no finite number. */
function vectors(column: Column, { dimensions }: PgType, rowCount: number, report: Report): void {
  const { offsets, valid, child, numbers } = vectorsOf(column);
  for (let row = 0; row < rowCount; row += 1) {
    const [start, end] = [offsets[row] ?? 0, offsets[row + 1] ?? 0];
    const length = end - start;
    if (valid?.[row] === 0) {
      continue;
    }
    if (length === 0 || length > mostDimensions || (dimensions !== undefined && length !== dimensions)) {
      const wanted = dimensions === undefined ? `1 to ${mostDimensions}` : dimensions;
      report(row, `a list of ${length} numbers, where the table's vector has ${wanted}`);
      continue;
    }
    for (let index = start; index < end; index += 1) {
      if (!Number.isFinite(numbers[index]) || child.valid?.[index] === 0) {
        const found = child.valid?.[index] === 0 ? "NULL" : numbers[index];
        report(row, `a list with ${found}, which a vector cannot hold`);
        break;
      }
    }
  }
}

/** Counts the bytes that do not continue a character. */
function charactersIn(text: Uint8Array, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at += 1) {
    if (((text[at] as number) & 0xc0) !== 0x80) {
      count += 1;
    }
  }
  return count;
}

/** Finds dates and timestamps outside of Postgres's calendar, which is shorter than DuckDB's at both ends, and no times. */
function moments(type: ColumnType, column: Column, rowCount: number, report: Report): void {
  if (column.kind !== "fixed") {
    return;
  }
  const { data, valid } = column;
  if (type === "date32") {
    const days = withoutBigInts(data);
    for (let row = 0; row < rowCount; row += 1) {
      if (!hasDay(days[row] as number) && valid?.[row] !== 0) {
        report(row, `a date ${days[row]} days from 1970, out of the range of Postgres`);
      }
    }
  } else if (type === "timestamp[us]" || type === "timestamp[us, UTC]") {
    // Each count of nanoseconds is within.
    for (let row = 0; row < rowCount; row += 1) {
      const value = data[row] as bigint;
      if (!hasMoment(value) && valid?.[row] !== 0) {
        report(row, `a timestamp ${value} microseconds from 1970, out of the range of Postgres`);
      }
    }
  } else if (type === "time64[us]" || type === "time64[ns]") {
    const end = type === "time64[ns]" ? microsPerDay * 1000n : microsPerDay;
    for (let row = 0; row < rowCount; row += 1) {
      const value = data[row] as bigint;
      if ((value < 0n || value > end) && valid?.[row] !== 0) {
        report(row, `a time ${value} ${type === "time64[ns]" ? "nano" : "micro"}seconds after midnight, which is none`);
      }
    }
  }
}
