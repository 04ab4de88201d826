import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

const { status, stdout } = spawnSync("git", ["ls-files"], { cwd: projectFolder, encoding: "utf8" });
const files = stdout.split("\n").filter((path) => path !== "");
const read = (path: string): string => readFileSync(join(projectFolder, path), "utf8");

const pages = files.filter((path) => /^(?:README|CONTRIBUTING)\.md$|^docs\/.*\.md$/.test(path));
const scripts = new Set(Object.keys((JSON.parse(read("package.json")) as { scripts: object }).scripts));
const paths = new Set(files);
const baseNames = new Set(files.map((path) => path.slice(path.lastIndexOf("/") + 1)));

/** Folders that a page may leave out of a path, as it says itself. */
const roots = ["", "src/", "test/", "src/targets/parquet/", "src/targets/postgres/"];

/** Source files that a page names, from one of the roots on, or by name alone. */
function missingFiles(text: string): string[] {
  const named = [...text.matchAll(/(?<![\w.:/{}*-])(?:[\w.-]+\/)*[\w-][\w.-]*\.(?:ts|mjs|mts|wat)(?![\w/])/g)];
  return [...new Set(named.map(([path]) => path))].filter((path) =>
    path.includes("/") ? !roots.some((root) => paths.has(`${root}${path}`)) : !baseNames.has(path),
  );
}

/** `crash/every-call`, as tables of tests name a file below test/. */
function missingTests(text: string): string[] {
  const named = [...text.matchAll(/`((?:[a-z0-9-]+\/)+[a-z0-9-]+)`/g)].map(([, path = ""]) => path);
  const folders = new Set(files.map((path) => path.split("/").slice(0, 2).join("/")));
  return named.filter(
    (path) => folders.has(`test/${path.split("/")[0]}`) && !paths.has(`test/${path}.test.ts`) && !isFolder(path),
  );
}

const isFolder = (path: string): boolean =>
  roots.some((root) => files.some((file) => file.startsWith(`${root}${path}/`)));

function missingScripts(text: string): string[] {
  const named = [...text.matchAll(/npm run ([\w:-]*\w)/g)].map(([, name = ""]) => name);
  return [...new Set(named)].filter((name) => !scripts.has(name));
}

/** How GitHub names the anchor of a heading. */
function anchorsOf(text: string): Set<string> {
  const headings = text.replaceAll(/^```[^]*?^```/gm, "").matchAll(/^#{1,6} (.*)$/gm);
  return new Set(
    [...headings].map(([, heading = ""]) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

function missingAnchors(page: string, text: string): string[] {
  const links = [...text.matchAll(/\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)/g)];
  return links
    .map(([, path = "", anchor = ""]) => ({ to: path === "" ? page : join(dirname(page), path), anchor }))
    .filter(({ to, anchor }) => !(paths.has(to) && anchorsOf(read(to)).has(anchor)))
    .map(({ to, anchor }) => `${to}#${anchor}`);
}

test.skipIf(status !== 0).each(pages)("every file, test, script and heading that %s names exists", (page) => {
  const text = read(page);
  expect({
    files: missingFiles(text),
    tests: missingTests(text),
    scripts: missingScripts(text),
    anchors: missingAnchors(page, text),
  }).toEqual({ files: [], tests: [], scripts: [], anchors: [] });
});

test.skipIf(status !== 0).each(["docs", "docs/decisions"])(
  "%s/README.md has a link to each page of its folder",
  (folder) => {
    const inFolder = pages.filter((page) => dirname(page) === folder && !page.endsWith("/README.md"));
    const index = read(`${folder}/README.md`);
    expect(inFolder.length).toBeGreaterThan(5);
    expect(inFolder.filter((page) => !index.includes(`](${page.slice(folder.length + 1)})`))).toEqual([]);
  },
);

/** Folders directly below src/ that the tables of docs/architecture.md leave out. */
function foldersLeftOut(text: string): string[] {
  const named = new Set([...text.matchAll(/^\| `([a-z0-9]+)\/` \|/gm)].map(([, name = ""]) => name));
  const folders = files.flatMap((path) => /^src\/([^/]+)\//.exec(path)?.[1] ?? []);
  return [...new Set(folders)].filter((name) => !named.has(name));
}

test.skipIf(status !== 0)("the tables of docs/architecture.md have each folder of src/", () => {
  const text = read("docs/architecture.md");
  expect(foldersLeftOut(text)).toEqual([]);
  expect(foldersLeftOut(text.replace("| `duckdb/` |", "| duckdb |"))).toEqual(["duckdb"]);
});

test("names that do not exist are found", () => {
  expect(missingFiles("`run/run.ts`, `run/runs.ts`, `src/run/run.ts`, run.ts and no-such.ts")).toEqual([
    "run/runs.ts",
    "no-such.ts",
  ]);
  expect(missingTests("`run/model`, `run/models`, `out/part`")).toEqual(["run/models"]);
  expect(missingScripts("`npm run build`, `npm run biuld`")).toEqual(["biuld"]);
  expect(missingAnchors("docs/README.md", "[a](#tasks) [b](#task) [c](../README.md#install)")).toEqual([
    "docs/README.md#task",
  ]);
});

test("a row's way from its shard to its committed part has at most 25 files in 6 rooms", () => {
  const [, way = ""] = /^## The way of a row$([^]*?)^## /m.exec(read("docs/architecture.md")) ?? [];
  const named = new Set([...way.matchAll(/`([\w/-]+\.ts)`/g)].map(([, path = ""]) => path));
  expect([...named].filter((path) => !paths.has(`src/${path}`))).toEqual([]);
  expect(named.size).toBeGreaterThan(15);
  expect(named.size).toBeLessThanOrEqual(25);
  const rooms = new Set([...named].map((path) => path.split("/")[0]));
  expect(rooms.size).toBeLessThanOrEqual(6);
});
