import type { RejectedRow } from "../batch/types.js";
import { count } from "./report.js";

const samplesPerReason = 5;

interface Group {
  rows: number;
  readonly samples: RejectedRow[];
}

/** Rejected rows counted by reason and column, most first, with the first few of each. */
export async function rejectsText(rows: AsyncIterable<RejectedRow>): Promise<string> {
  const groups = new Map<string, Group>();
  let total = 0;
  for await (const rejected of rows) {
    const key = `${rejected.reason}${rejected.column === null ? "" : ` in ${rejected.column}`}`;
    const group = groups.get(key) ?? { rows: 0, samples: [] };
    groups.set(key, group);
    group.rows += 1;
    total += 1;
    if (group.samples.length < samplesPerReason) {
      group.samples.push(rejected);
    }
  }
  const lines = [`${count(total, "row")} rejected by committed spans`];
  for (const [key, group] of [...groups].toSorted(([, one], [, other]) => other.rows - one.rows)) {
    lines.push(`${count(group.rows, "row")}: ${key}`, ...group.samples.map(sampleText));
  }
  return `${lines.join("\n")}\n`;
}

function sampleText({ shard, row, columns, value }: RejectedRow): string {
  const carried = Object.entries(columns).map(([name, text]) => `${name}=${text ?? "NULL"}`);
  return `  ${shard} row ${row}${carried.length === 0 ? "" : ` (${carried.join(", ")})`}: ${value ?? "NULL"}`;
}
