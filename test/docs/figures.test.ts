import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

const read = (path: string): string => readFileSync(join(projectFolder, path), "utf8");

/** Rows of the table of a job, by the start of their first cell. */
function rowsOf(job: string): (contender: string) => string[] {
  const [, section = ""] = new RegExp(`^## ${job}: [^]*?\\n([^]*?)(?=^## )`, "m").exec(read("bench/results.md")) ?? [];
  const rows = [...section.matchAll(/^\| (.*) \|$/gm)].map(([, cells = ""]) => cells.split(" | "));
  return (contender) => rows.find(([name = ""]) => name.startsWith(contender)) ?? [];
}

test("the README's figures are those of bench/results.md", () => {
  const row = rowsOf("mlp");
  const [, , , perSecond = "", , , , peak = ""] = row("**infer-batch**");
  const ratio = (contender: string): string => Number(row(contender)[4]).toFixed(1);
  const readme = read("README.md");
  expect(readme).toContain(`**${(Number(perSecond.replaceAll(",", "")) / 1e6).toFixed(2)} million rows per second**`);
  expect(readme).toContain(`with ${peak.trim()} MiB of memory at the peak`);
  expect(readme).toContain(`**${ratio("plain Python loop")} times** the rate of a plain Python loop`);
  expect(readme).toContain(
    `**${ratio("Daft")} times** the rate of Daft, ${ratio("Ray Data")} times Ray Data's and ${ratio("PySpark")} times PySpark's`,
  );
});
