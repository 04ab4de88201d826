import type { Measures } from "../checks/agreement/agreement.js";
import { showBytes } from "../report/plan-text.js";
import { assertNever } from "../util/errors.js";
import { count } from "../report/report.js";
import { table } from "../report/table.js";
import type { Comparison, ModelSpeed } from "../run/compare.js";

type Named<K extends Measures["kind"]> = readonly [string, Extract<Measures, { kind: K }>];

function ofKind<K extends Measures["kind"]>(columns: Comparison["columns"], kind: K): Named<K>[] {
  return [...columns].flatMap(([name, found]) =>
    found.kind === kind ? [[name, found as Extract<Measures, { kind: K }>] as const] : [],
  );
}

/** Shows a comparison as tables. */
export function comparisonText(comparison: Comparison, tolerance: number): string {
  const { rows, one, other, apart, columns } = comparison;
  const numbers = ofKind(columns, "numbers");
  const labels = ofKind(columns, "labels");
  const vectors = ofKind(columns, "vectors");
  return [
    `A  ${one.name}`,
    `B  ${other.name}`,
    ...rowLines(rows),
    "speed of the model alone, and size of its file",
    ...speedTable(one, other),
    ...(numbers.length === 0 ? [] : numberLines(numbers, tolerance)),
    ...(labels.length === 0 ? [] : labelLines(labels)),
    ...(vectors.length === 0 ? [] : vectorLines(vectors)),
    ...(apart.length === 0 ? [] : ["not compared", ...table(apart.map(({ name, reason }) => [name, reason]))]),
    ...[...columns].flatMap(([name, measures]) => differentLines(comparison, name, measures)),
    "",
  ].join("\n");
}

function rowLines({ input, read, compared, onlyOne, onlyOther }: Comparison["rows"]): string[] {
  const whole =
    read === input ? `all ${count(input, "row")}` : `the first ${count(read, "row")} of ${showNumber(input)}`;
  const apart = [
    ...(onlyOne === 0 ? [] : [`${count(onlyOne, "row")} that only A could score`]),
    ...(onlyOther === 0 ? [] : [`${count(onlyOther, "row")} that only B could score`]),
  ];
  return [`${count(compared, "row")} compared, from ${whole}`, ...apart];
}

function speedTable(one: ModelSpeed, other: ModelSpeed): string[] {
  const head = ["", "rows/s", "size", "provider", "batch rows"];
  return table([head, speedLine("A", one), speedLine("B", other)], { right: [1, 2, 4] });
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

function numberLines(columns: readonly Named<"numbers">[], tolerance: number): string[] {
  const head = ["column", "mean difference", "largest", `rows beyond ${tolerance}`, "rank correlation", "PSI"];
  const rows = columns.map(([name, found]) => [
    name,
    figure(found.meanDifference),
    figure(found.largestDifference),
    share(found.beyond, found.rows),
    figure(found.rankCorrelation),
    figure(found.psi),
  ]);
  const sampled = columns.find(([, found]) => found.isSampled)?.[1];
  return [
    "numbers",
    ...table([head, ...rows], { right: [1, 2, 3, 4, 5] }),
    ...(sampled === undefined
      ? []
      : [`  the rank correlation is that of a sample of ${count(sampled.rankedRows, "row")}`]),
  ];
}

/** The number of pairs of labels that are shown. */
const shownFlips = 10;

function labelLines(columns: readonly Named<"labels">[]): string[] {
  const rows = columns.map(([name, found]) => [name, share(found.equal, found.rows), figure(found.psi)]);
  const flips = columns.flatMap(([name, found]) => {
    const some = found.flips?.slice(0, shownFlips) ?? [];
    const left = (found.flips?.length ?? 0) - some.length;
    const lines = some.map(({ one, other, rows: flipped }) => [name, one, other, showNumber(flipped)]);
    const rest = found.flips === undefined ? "too many different pairs" : `${left} more pairs`;
    return found.flips === undefined || left > 0 ? [...lines, [name, rest, "", ""]] : lines;
  });
  return [
    "labels",
    ...table([["column", "equal", "PSI"], ...rows], { right: [1, 2] }),
    ...(flips.length === 0
      ? []
      : ["labels that differ", ...table([["column", "A", "B", "rows"], ...flips], { right: [3] })]),
  ];
}

function vectorLines(columns: readonly Named<"vectors">[]): string[] {
  const rows = columns.map(([name, { meanCosine, lowestCosine, without }]) => [
    name,
    figure(meanCosine),
    figure(lowestCosine),
    showNumber(without),
  ]);
  return ["vectors", ...table([["column", "mean cosine", "lowest", "rows without"], ...rows], { right: [1, 2, 3] })];
}

function differentLines({ keys }: Comparison, name: string, { kind, most }: Measures): string[] {
  if (most.length === 0) {
    return [];
  }
  const names = Object.keys(keys.get(most[0]?.row ?? -1)?.columns ?? {});
  const lines = most.map(({ row, one, other, distance }) => {
    const key = keys.get(row);
    const values = names.map((column) => key?.columns[column] ?? "NULL");
    return [
      ...(names.length === 0 ? [String(row)] : values),
      one,
      other,
      ...(kind === "labels" ? [] : [figure(distance)]),
    ];
  });
  const heads = names.length === 0 ? ["row"] : names;
  const distance = { numbers: ["difference"], vectors: ["1 - cosine"], labels: [] }[kind];
  return [`rows that differ most in ${name}`, ...table([[...heads, "A", "B", ...distance], ...lines])];
}

function showNumber(value: number): string {
  return value.toLocaleString("en-US");
}

function figure(value: number): string {
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(6)));
}

/** Shows a share as a percentage. Only a share of none is 0%, and only a share of all is 100%. */
function share(rows: number, of: number): string {
  const percent = (100 * rows) / of;
  const digits = percent.toFixed(2);
  const shown = rows > 0 && digits === "0.00" ? "<0.01" : rows < of && digits === "100.00" ? ">99.99" : digits;
  return of === 0 ? "" : `${shown}%`;
}

/** Shows a comparison as one line of JSON; figures that cannot be computed are null. */
export function comparisonJson({ rows, one, other, apart, columns, keys }: Comparison): string {
  return `${JSON.stringify({
    rows_input: rows.input,
    rows_read: rows.read,
    rows_compared: rows.compared,
    rows_only_a: rows.onlyOne,
    rows_only_b: rows.onlyOther,
    a: modelJson(one),
    b: modelJson(other),
    outputs: Object.fromEntries([...columns].map(([name, found]) => [name, measuresJson(found, keys)])),
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

function measuresJson(found: Measures, keys: Comparison["keys"]): object {
  const most = found.most.map(({ row, distance, one, other }) => {
    const key = keys.get(row);
    return { shard: key?.shard, row: key?.row, columns: key?.columns, a: one, b: other, distance };
  });
  switch (found.kind) {
    case "numbers":
      return {
        kind: "numbers",
        mean_difference: found.meanDifference,
        largest_difference: found.largestDifference,
        rows_beyond_tolerance: found.beyond,
        rank_correlation: found.rankCorrelation,
        rows_ranked: found.rankedRows,
        psi: found.psi,
        most_different: most,
      };
    case "labels": {
      const flips = found.flips?.map(({ one, other, rows }) => ({ a: one, b: other, rows })) ?? null;
      return { kind: "labels", rows_equal: found.equal, psi: found.psi, flips, most_different: most };
    }
    case "vectors":
      return {
        kind: "vectors",
        mean_cosine: found.meanCosine,
        lowest_cosine: found.lowestCosine,
        rows_without_cosine: found.without,
        most_different: most,
      };
    default:
      return assertNever(found);
  }
}
