import type { Measures } from "../../checks/agreement.js";
import {
  agreementFields,
  agreementTables,
  apartTable,
  differentRowTables,
  type ShownAgreement,
} from "../../report/agreement.js";
import { showBytes } from "../../report/plan-text.js";
import { count } from "../../report/report.js";
import { fitTable } from "../../report/table.js";
import type { Comparison, ModelSpeed } from "../../run/compare.js";

/** Shows a comparison as tables. `width`: characters in a line of the terminal; undefined: there is none. */
export function comparisonText(
  comparison: Comparison,
  { tolerance, width }: Pick<ShownAgreement, "tolerance" | "width">,
): string {
  const { one, other, apart, columns } = comparison;
  const shown: ShownAgreement = {
    columns,
    tolerance,
    width,
    names: ["A", "B"],
    keysOf: ({ keys }) => keys,
  };
  return [
    `A  ${one.name}`,
    `B  ${other.name}`,
    ...rowLines(comparison),
    "speed of the model alone, and size of its file",
    ...speedTable([one, other], width),
    ...agreementTables(shown),
    ...apartTable(apart, width),
    ...differentRowTables(shown),
    "",
  ].join("\n");
}

function rowLines({ input, read, rows: { matched, onlyA, onlyB } }: Comparison): string[] {
  const whole =
    read === input ? `all ${count(input, "row")}` : `the first ${count(read, "row")} of ${showNumber(input)}`;
  const apart = [
    ...(onlyA === 0 ? [] : [`${count(onlyA, "row")} that only A could score`]),
    ...(onlyB === 0 ? [] : [`${count(onlyB, "row")} that only B could score`]),
  ];
  return [`${count(matched, "row")} compared, from ${whole}`, ...apart];
}

function speedTable([one, other]: readonly [ModelSpeed, ModelSpeed], width: number | undefined): string[] {
  const head = ["", "rows/s", "size", "provider", "batch rows"];
  const rows = [head, speedLine("A", one), speedLine("B", other)];
  return fitTable(rows, { right: [1, 2, 4], width, leaveOut: [3, 4] });
}

function speedLine(name: string, { rowsPerSecond, sizeBytes, provider, batchRows }: ModelSpeed): string[] {
  return [
    name,
    rowsPerSecond === undefined ? "" : showNumber(rowsPerSecond),
    showBytes(sizeBytes),
    provider,
    showNumber(batchRows),
  ];
}

function showNumber(value: number): string {
  return value.toLocaleString("en-US");
}

/** Shows a comparison as one line of JSON; figures that cannot be computed are null. */
export function comparisonJson({ input, read, rows, one, other, apart, columns, placeOf }: Comparison): string {
  const fieldsOf = (found: Measures): object =>
    agreementFields(found, ["a", "b"], ({ row, keys }) => ({ ...placeOf(row), columns: keys }));
  return `${JSON.stringify({
    rows_input: input,
    rows_read: read,
    rows_compared: rows.matched,
    rows_only_a: rows.onlyA,
    rows_only_b: rows.onlyB,
    a: modelJson(one),
    b: modelJson(other),
    outputs: Object.fromEntries([...columns].map(([name, found]) => [name, fieldsOf(found)])),
    not_compared: Object.fromEntries(apart.map(({ name, reason }) => [name, reason])),
  })}\n`;
}

function modelJson({ name, sha256, sizeBytes, provider, batchRows, rowsPerSecond }: ModelSpeed): object {
  return {
    model: name,
    sha256,
    size_bytes: sizeBytes,
    provider,
    batch_rows: batchRows,
    rows_per_second: rowsPerSecond ?? null,
  };
}
