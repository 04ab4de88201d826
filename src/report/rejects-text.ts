import { count } from "../base/shown-numbers.js";
import type { RejectedRow } from "../columns/types.js";
import { printable } from "../base/texts.js";

const samplesPerReason = 5;

interface Group {
  rows: number;
  readonly samples: RejectedRow[];
}

interface RejectSummary {
  readonly rows: number;
  /** The number of rows that `lines` only counts. */
  readonly unshown: number;
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
    get unshown() {
      return [...groups.values()].reduce((sum, group) => sum + group.rows - group.samples.length, 0);
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
        .toSorted(([, left], [, right]) => right.rows - left.rows)
        .flatMap(([key, group]) => groupLines(key, group))
        .map(printable),
  };
}

function groupLines(key: string, { rows, samples }: Group): string[] {
  const more = rows - samples.length;
  const last = more === 0 ? [] : [`  and ${count(more, "more row")}`];
  return [`${count(rows, "row")}: ${key}`, ...samples.map(sampleText), ...last];
}

/** The summary of all rejected rows as text. */
export async function rejectsText(rows: AsyncIterable<RejectedRow>): Promise<string> {
  const summary = summarizeRejects();
  for await (const rejected of rows) {
    summary.add(rejected);
  }
  const cut = summary.unshown === 0 ? [] : ["--json prints all of them"];
  return `${[`${count(summary.rows, "row")} rejected in committed spans`, ...summary.lines(), ...cut].join("\n")}\n`;
}

function sampleText({ shard, row, columns, value }: RejectedRow): string {
  const carried = Object.entries(columns).map(([name, text]) => `${name}=${text ?? "NULL"}`);
  return `  ${shard} row ${row}${carried.length === 0 ? "" : ` (${carried.join(", ")})`}: ${value ?? "NULL"}`;
}
