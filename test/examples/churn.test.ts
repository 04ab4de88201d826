import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { chmod, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { readRows } from "../support/parquet.js";
import type { Database, PgRow } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";

const example = join(projectFolder, "examples/churn");
/** What the page has a reader install. */
const scikit = pythonToolsOfTorture(
  "churn",
  readFileSync(join(example, "requirements.txt"), "utf8").trim().split("\n"),
);

/** The fenced blocks of a page that are of one language. */
function blocks(page: string, language: string): string[] {
  return [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, "gm"))].map(([, text = ""]) => text);
}

/** A folder for the path where `npx infer-batch` is the program that was built. */
async function withNpx(folder: string): Promise<string> {
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(
    join(bin, "npx"),
    `#!/bin/sh\nshift\nexec "${process.execPath}" "${projectFolder}/bin/infer-batch.js" "$@"\n`,
  );
  await chmod(join(bin, "npx"), 0o755);
  return `${bin}:${process.env["PATH"]}`;
}

/** What a shell makes of commands that a reader would paste. */
function paste(
  commands: string,
  { cwd, ...env }: { readonly cwd: string; readonly PATH: string; readonly DATABASE_URL: string },
): string {
  const { status, stdout, stderr } = spawnSync("sh", ["-e", "-c", commands], {
    cwd,
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  expect([status, stderr.replaceAll(/^\[\d.*INFO.*\n/gm, "")]).toEqual([0, ""]);
  return stdout;
}

/** As psql shows it. */
function table(rows: readonly PgRow[]): string {
  const names = Object.keys(rows[0] ?? {});
  const cells = [names, ...rows.map((row) => names.map((name) => shown(row[name])))];
  const widths = names.map((_, index) => Math.max(...cells.map((line) => line[index]?.length ?? 0)));
  const lines = cells.map((line) =>
    line
      .map((cell, index) => cell.padEnd(widths[index] ?? 0))
      .join(" | ")
      .trimEnd(),
  );
  return `${lines.join("\n")}\n`;
}

function shown(value: unknown): string {
  return value instanceof Date ? value.toLocaleDateString("sv") : String(value);
}

async function farFrom(database: Database, expected: string): Promise<number> {
  const rows = await database.query("SELECT customer_id, probabilities_1 FROM predictions.churn");
  const scores = new Map(rows.map(({ customer_id: id, probabilities_1: score }) => [String(id), Number(score)]));
  const known = await readRows(expected);
  expect([rows.length, scores.size]).toEqual([known.length, known.length]);
  return Math.max(
    ...known.map(({ customer_id: id, leaves }) => Math.abs((scores.get(String(id)) ?? 9) - Number(leaves))),
  );
}

/** Copies the example without what the README's commands leave there. */
async function copyExample(to: string): Promise<void> {
  const left = new Set(["job.yaml", "infer-batch.schema.json", "out"].map((name) => join(example, name)));
  await cp(example, to, { recursive: true, filter: (path) => !left.has(path) });
}

const postgres = usePostgres();

postgres.describe("the walk-through", () => {
  test("leads from model and shards to scikit-learn's own probabilities in Postgres, as its page says", async () => {
    await using database = await postgres.server().createDatabase();
    const cwd = join(scratch.path, "churn");
    await copyExample(cwd);
    const env = { cwd, PATH: await withNpx(scratch.path), DATABASE_URL: database.url };
    const page = await readFile(join(cwd, "README.md"), "utf8");
    const said = blocks(page, "sh")
      .slice(1)
      .map((commands) => paste(commands, env));
    expect(said.at(-1)).toMatch(/^churn-\w+: complete, 2,000 rows scored[^]*\nchurn-\w+: already complete/);
    const [query = ""] = blocks(page, "sql");
    expect(table(await database.query(query))).toBe(blocks(page, "text")[0]);
    expect(await farFrom(database, join(cwd, "expected.parquet"))).toBeLessThan(1e-5);
  });

  test.skipIf(scikit.missing !== undefined)(`begins with training${scikit.skipped}`, async () => {
    await using database = await postgres.server().createDatabase();
    const cwd = join(scratch.path, "churn");
    await copyExample(cwd);
    await rm(join(cwd, "data"), { recursive: true });
    const trained = spawnSync(join(scikit.bin, "python"), ["train.py"], { cwd, encoding: "utf8" });
    expect([trained.status, trained.stderr]).toEqual([0, ""]);
    const env = { cwd, PATH: await withNpx(scratch.path), DATABASE_URL: database.url };
    const page = await readFile(join(cwd, "README.md"), "utf8");
    for (const commands of blocks(page, "sh").slice(1)) {
      paste(commands, env);
    }
    expect(await farFrom(database, join(cwd, "expected.parquet"))).toBeLessThan(1e-5);
  });
});
