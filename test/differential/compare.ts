import { showType } from "#src/columns/types.js";
import type { Row } from "../support/parquet.js";
import type { Case } from "./cases.js";
import type { Feature } from "./features.js";
import type { Prediction } from "./models.js";
import { type ExpectedRow, expectedColumns } from "./oracle.js";
import type { ReadPart } from "./read-output.js";
import { textOf, type Value } from "./values.js";

const shownLimit = 10;

/** Where what came out is not what was expected: columns, their types, rows, values, rejects. */
export function differencesOf(
  one: Case,
  expected: readonly ExpectedRow[],
  { parts, rejects }: { parts: readonly ReadPart[]; rejects: readonly Row[] },
): string[] {
  const columns = expectedColumns(one).map(([name, type]) => `${name} ${showType(type)}`);
  const found = parts.flatMap((part, index) => {
    const names = part.columns.map((column) => column.join(" "));
    return names.join() === columns.join()
      ? []
      : [`part ${index}: columns ${names.join()}, expected ${columns.join()}`];
  });
  const rows = parts.flatMap((part) => part.rows);
  found.push(...rowDifferences(one, expected, rows), ...rejectDifferences(expected, rejects));
  return found.length > shownLimit ? [...found.slice(0, shownLimit), `… ${found.length} in all`] : found;
}

function rowDifferences(one: Case, expected: readonly ExpectedRow[], rows: readonly (readonly Value[])[]): string[] {
  const due = expected.filter(({ outcome }) => outcome.kind === "scored");
  const found = rows.length === due.length ? [] : [`${rows.length} rows, expected ${due.length}`];
  const names = expectedColumns(one).map(([name]) => name);
  for (const [index, { shard, row, carried, outcome }] of due.entries()) {
    const given = rows[index] ?? [];
    const where = `output row ${index} (${shard}, row ${row})`;
    carried.forEach((value, place) => {
      if (textOf(given[place]) !== textOf(value)) {
        found.push(`${where}, ${names[place]}: ${textOf(given[place])}, expected ${textOf(value)}`);
      }
    });
    const predictions = outcome.kind === "scored" ? outcome.predictions : [];
    predictions.forEach((prediction, place) => {
      const value = given[carried.length + place];
      if (!isPredicted(value, prediction)) {
        const about = `${where}, ${names[carried.length + place]}`;
        found.push(`${about}: ${textOf(value)}, expected ${textOf(prediction.value)}`);
      }
    });
    if (found.length > shownLimit) {
      break;
    }
  }
  return found;
}

function isPredicted(given: unknown, { value, tolerance = 0 }: Prediction): boolean {
  const expected: Feature[] = [value].flat();
  const found = [given].flat();
  return (
    found.length === expected.length &&
    expected.every((one, index) => {
      const other = found[index];
      return typeof one === "number" && tolerance > 0
        ? Math.abs(Number(other) - one) <= tolerance
        : // An integer of 32 bits or less is read as a number.
          textOf(
            typeof one === "bigint" ? BigInt(Number.isInteger(other) ? (other as number) : (other as bigint)) : other,
          ) === textOf(one);
    })
  );
}

interface RejectLine {
  readonly shard: string;
  readonly row: number;
  readonly column: string | null;
  readonly reason: string;
  readonly value: string | null;
  readonly columns: Readonly<Record<string, string | null>>;
}

function rejectDifferences(expected: readonly ExpectedRow[], lines: readonly Row[]): string[] {
  const due = expected.filter(({ outcome }) => outcome.kind === "bad");
  const found = lines.length === due.length ? [] : [`${lines.length} rejects, expected ${due.length}`];
  for (const [index, one] of due.entries()) {
    const line = lines[index] as unknown as RejectLine | undefined;
    const faults = one.outcome.kind === "bad" ? one.outcome.faults : [];
    const isDue =
      line !== undefined &&
      line.shard === one.shard &&
      line.row === one.row &&
      line.columns["id"] === textOf(one.carried[0]) &&
      faults.some(
        ({ reason, column, shown }) =>
          line.reason === reason && line.column === column && (shown === undefined || line.value === shown),
      );
    if (!isDue) {
      found.push(
        `reject ${index}: ${JSON.stringify(line)}, expected ${one.shard}, row ${one.row}: ${JSON.stringify(faults)}`,
      );
    }
    if (found.length > shownLimit) {
      break;
    }
  }
  return found;
}
