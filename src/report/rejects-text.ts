import type { RejectedRow } from "../columnar/types.js";
import { printable } from "../util/printable.js";
import { count } from "./report.js";

const samplesPerReason = 5;

interface Group {
  rows: number;
  readonly samples: RejectedRow[];
}

/** Counts rejected rows by reason and column, and keeps the first few of each. */
export interface RejectSummary {
  readonly rows: number;
  add(rejected: RejectedRow): void;
  /** Lines of text, largest count first. */
  lines(): string[];
}

/** Makes an empty summary. */
export function summarizeRejects(): RejectSummary {
  const groups = new Map<string, Group>();
  let total = 0;
  return {
    get rows() {
      return total;
    },
    add(rejected) {
      const key = `${rejected.reason}${rejected.column === null ? "" : ` in ${rejected.column}`}`;
      const group = groups.get(key) ?? { rows: 0, samples: [] };
      groups.set(key, group);
      group.rows += 1;
      total += 1;
      if (group.samples.length < samplesPerReason) {
        group.samples.push(rejected);
      }
    },
    lines: () =>
      [...groups]
        .toSorted(([, one], [, other]) => other.rows - one.rows)
        .flatMap(([key, group]) => [`${count(group.rows, "row")}: ${key}`].concat(group.samples.map(sampleText)))
        .map(printable),
  };
}

/** The summary of all rejected rows as text. */
export async function rejectsText(rows: AsyncIterable<RejectedRow>): Promise<string> {
  const summary = summarizeRejects();
  for await (const rejected of rows) {
    summary.add(rejected);
  }
  return `${[`${count(summary.rows, "row")} rejected in committed spans`, ...summary.lines()].join("\n")}\n`;
}

function sampleText({ shard, row, columns, value }: RejectedRow): string {
  const carried = Object.entries(columns).map(([name, text]) => `${name}=${text ?? "NULL"}`);
  return `  ${shard} row ${row}${carried.length === 0 ? "" : ` (${carried.join(", ")})`}: ${value ?? "NULL"}`;
}
