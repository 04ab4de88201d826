import type { Measures } from "../../checks/agreement.js";
import {
  agreementFields,
  agreementTables,
  apartTable,
  differentRowTables,
  type ShownAgreement,
} from "../../report/agreement.js";
import { count, showCount } from "../../report/report.js";
import { fitTable } from "../../report/table.js";
import { assertNever } from "../../util/errors.js";
import type { Difference } from "../../run/diff.js";

/** The number of columns that are shown for people. */
const shownColumns = 10;

/** Shows how two sets of rows differ, as tables: the columns that differ in most rows. */
export function differenceText(
  difference: Difference,
  { tolerance, width }: Pick<ShownAgreement, "tolerance" | "width">,
): string {
  const { a, b, key, rows } = difference;
  const most = [...difference.columns].toSorted(([, one], [, other]) => differing(other) - differing(one));
  const columns = new Map(most.slice(0, shownColumns));
  const left = most.length - columns.size;
  const shown: ShownAgreement = { columns, tolerance, width, names: ["A", "B"], keysOf: ({ keys }) => keys };
  return [
    `A  ${a}: ${count(rows.rowsA, "row")}`,
    `B  ${b}: ${count(rows.rowsB, "row")}`,
    `rows by ${key.join(", ")}`,
    ...fitTable(
      [
        ["only in A (gone)", showCount(rows.onlyA)],
        ["only in B (added)", showCount(rows.onlyB)],
        ["in both, changed", showCount(rows.changed)],
        ["in both, equal", showCount(rows.matched - rows.changed)],
      ],
      { right: [1], width },
    ),
    ...repeatedLines(difference, width),
    ...agreementTables(shown),
    ...apartTable(difference.apart, width),
    ...differentRowTables(shown),
    ...(left === 0 ? [] : [`${count(left, "more column")}, with fewer differences: --json has all`]),
    "",
  ].join("\n");
}

/** Keys that are several times on a side: only their numbers of rows are compared. */
function repeatedLines({ rows: { repeated, uneven, examples } }: Difference, width: number | undefined): string[] {
  if (repeated === 0) {
    return [];
  }
  const lines = examples.map(({ key, a, b }) => [key, showCount(a), showCount(b)]);
  return [
    `${count(repeated, "key")} with several rows, not compared; ${showCount(uneven)} not as often in B as in A`,
    ...fitTable([["key", "rows in A", "in B"], ...lines], { right: [1, 2], width }),
  ];
}

/** The number of rows that differ in a column. */
function differing(found: Measures): number {
  switch (found.kind) {
    case "numbers":
      return found.beyond;
    case "labels":
    case "times":
      return found.rows - found.equal;
    case "vectors":
      return found.most.length === 0 ? 0 : found.rows;
    default:
      return assertNever(found);
  }
}

/** Shows a difference as one line of JSON; figures that cannot be computed are null. */
export function differenceJson(difference: Difference): string {
  const { a, b, key, rows, columns, apart } = difference;
  return `${JSON.stringify({
    a,
    b,
    key,
    rows_a: rows.rowsA,
    rows_b: rows.rowsB,
    rows_gone: rows.onlyA,
    rows_added: rows.onlyB,
    rows_compared: rows.matched,
    rows_changed: rows.changed,
    keys_repeated: rows.repeated,
    keys_uneven: rows.uneven,
    repeated: rows.examples,
    outputs: Object.fromEntries([...columns].map(([name, found]) => [name, fieldsOf(found)])),
    not_compared: Object.fromEntries(apart.map(({ name, reason }) => [name, reason])),
  })}\n`;
}

function fieldsOf(found: Measures): object {
  return agreementFields(found, ["a", "b"], ({ keys }) => ({ columns: keys }));
}
