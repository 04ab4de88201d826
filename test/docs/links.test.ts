import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import picomatch from "picomatch";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

/** What a clone has. Files that .gitignore leaves out are only on the author's disk. */
const { status, stdout } = spawnSync("git", ["ls-files"], { cwd: projectFolder, encoding: "utf8" });
const files = stdout.split("\n").filter((path) => path !== "");
const tracked = new Set(
  files.flatMap((path) => path.split("/").map((_, index, parts) => parts.slice(0, index + 1).join("/"))),
);
const pages = files.filter((path) => path.endsWith(".md"));

/** Paths of relative links, from the project's folder on. */
function linksOf(page: string): string[] {
  const text = readFileSync(join(projectFolder, page), "utf8");
  const links = [...text.matchAll(/\]\((?!\w+:|#)([^)#\s]+)/g)].map(([, path = ""]) => join(dirname(page), path));
  return links.map((path) => path.replace(/\/$/, ""));
}

/** Paths from the project's folder on: those of links, and those that a text or a command names in full. */
function pathsOf(page: string): string[] {
  const text = readFileSync(join(projectFolder, page), "utf8");
  const named = [...text.matchAll(/(?<![\w./-])(?:examples|fixtures|deploy|docs)\/[\w./-]*\w/g)].map(([path]) => path);
  return [...new Set([...linksOf(page), ...named])];
}

test.skipIf(status !== 0).each(pages)("what %s names is in a clone", (page) => {
  expect(pathsOf(page).filter((path) => !tracked.has(path))).toEqual([]);
});

test.skipIf(status !== 0)("links and commands are found where they are", () => {
  expect(pathsOf("README.md")).toContain("docs/faults.md");
  expect(pathsOf("deploy/README.md")).toContain("deploy/cron/README.md");
  expect(pathsOf("examples/spark/README.md")).toContain("examples/spark/job.yaml");
});

/** The patterns of `files` in package.json, as npm reads them: a folder means all files in it. */
const { files: patterns } = JSON.parse(readFileSync(join(projectFolder, "package.json"), "utf8")) as {
  files: string[];
};
const isPacked = picomatch(["package.json", ...patterns.flatMap((one) => [one, `${one}/**`])]);
const packed = files.filter((path) => isPacked(path));
const inPackage = new Set(
  packed.flatMap((path) => path.split("/").map((_, index, parts) => parts.slice(0, index + 1).join("/"))),
);

test.skipIf(status !== 0).each(packed.filter((path) => path.endsWith(".md")))(
  "the links of %s lead to files of the npm package",
  (page) => {
    expect(linksOf(page).filter((path) => !inPackage.has(path))).toEqual([]);
  },
);

const page = readFileSync(join(projectFolder, "docs/errors.md"), "utf8");
const sources = readdirSync(join(projectFolder, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => readFileSync(join(projectFolder, "src", name), "utf8").replaceAll(/\\?`/g, "`"))
  .join("\n");

/** The texts in the first column of each table, cut where a name or number stands. */
const fragments = [...page.matchAll(/^\| ([^|]*`[^|]*) \|/gm)].flatMap(([, cell = ""]) =>
  [...cell.matchAll(/`([^`]+)`/g)].flatMap(([, quoted = ""]) =>
    quoted.split(/\s*…\s*/).filter((text) => text.length > 3),
  ),
);

test("every error message that docs/errors.md quotes is in the program", () => {
  expect(fragments.length).toBeGreaterThan(50);
  expect(fragments.filter((text) => !sources.includes(text))).toEqual([]);
});

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
