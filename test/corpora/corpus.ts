import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { projectFolder } from "../support/cli.js";

/** What comes with this repository: the small files, copied by scripts/small-corpora.mjs. */
const small = join(projectFolder, "fixtures/corpora/small");
/** Empty: only the small files. */
const named = process.env["INFER_BATCH_CORPORA"];
const beside = named ?? join(projectFolder, "../shared/corpora");
if (named !== undefined && named !== "" && !existsSync(join(named, "parquet-testing"))) {
  throw new Error(`INFER_BATCH_CORPORA: there is no parquet-testing in ${named}`);
}

/** Whether all files are there, not just the small ones. */
export const corpusIsWhole = named !== "" && existsSync(join(beside, "parquet-testing"));
const corpora = corpusIsWhole ? beside : small;
export const corpusFolder = join(corpora, "parquet-testing");
const arrowIsWhole = named !== "" && existsSync(join(beside, "arrow-testing"));
export const arrowCorpus = join(arrowIsWhole ? beside : small, "arrow-testing/data");
/** For the names of tests. */
export const corpusNote = corpusIsWhole ? "" : " (the small ones)";
export const arrowNote = arrowIsWhole ? "" : " (the small ones)";

/** What a command does with a file: exit code, message (or how it starts) and hint, or "read". */
export type Expected = "read" | { readonly exit: number; readonly says: string; readonly hint: string };

/** What is known of a file of the corpus. */
export interface ExpectedFile {
  readonly inspect: Expected;
  readonly run: Expected;
  readonly rows?: number;
  /** Columns that no job can carry or bind, and what one that names them is told. */
  readonly refused?: Readonly<Record<string, string>>;
  /** What its values are compared with beside pyarrow's reading: a file of the corpus. */
  readonly csv?: string;
  /** Where what comes out is not what it is compared with, and the note says why that is so. */
  readonly differs?: readonly string[];
  readonly note?: string;
}

/** What pyarrow reads; see fixtures/corpora.py. */
export type GoldenFile =
  | { readonly error: string }
  | { readonly rows: number; readonly columns: Readonly<Record<string, GoldenColumn>> };

export interface GoldenColumn {
  readonly type: string;
  readonly nulls?: number;
  readonly values?: readonly string[];
  readonly first?: readonly string[];
  readonly last?: readonly string[];
  readonly sha256?: string;
}

export const expectedFiles = readJson("parquet-testing.expected.json") as Readonly<Record<string, ExpectedFile>>;
const golden = readJson("parquet-testing.json") as { readonly files: Readonly<Record<string, GoldenFile>> };

function readJson(name: string): unknown {
  return JSON.parse(readFileSync(join(projectFolder, "fixtures/corpora", name), "utf8"));
}

/** Files that Apache's repository has, too, and nothing is pinned of. */
const notPinned = new Set([
  "bad_data/ARROW-GH-41321.parquet",
  "bad_data/ARROW-GH-45185.parquet",
  "bad_data/ARROW-GH-47662.parquet",
  "bad_data/ARROW-RS-GH-6229-LEVELS.parquet",
]);

/** Every file of the Parquet corpus, by its path in it; of a clone those of the folders that are pinned. */
export function filesOfCorpus(): string[] {
  return filesIn(corpusFolder).filter(
    (name) => /^(data|bad_data)\/|^LICENSE/.test(name) && !name.endsWith(".py") && !notPinned.has(name),
  );
}

/** Golden files of the Arrow corpus, of the versions that are pinned. */
export function goldenOfArrow(pinned: readonly string[]): string[] {
  const folders = new Set(pinned.map((name) => dirname(name)));
  return filesIn(arrowCorpus).filter((name) => /\.(arrow_file|stream)$/.test(name) && folders.has(dirname(name)));
}

/** What fuzzers found in readers of Arrow: files and streams that are damaged, but for one that Apache's repository has. */
export function fuzzedOfArrow(): string[] {
  return filesIn(arrowCorpus).filter(
    (name) => /^arrow-ipc-(file|stream)\/(clusterfuzz|crash)-[^/]+$/.test(name) && !name.endsWith(readableFuzzed),
  );
}

/** pyarrow reads all of it, too. */
const readableFuzzed = "-6088759971217408";

/** Every file of a folder, by its path in it. */
export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .toSorted();
}

export function goldenOf(file: string): Extract<GoldenFile, { rows: number }> | undefined {
  const found = golden.files[file];
  return found === undefined || "error" in found ? undefined : found;
}

/** Where the texts of a column are not pyarrow's; empty when they are. */
export function differencesFrom({ values, first, last, sha256 }: GoldenColumn, texts: readonly string[]): string[] {
  if (values !== undefined) {
    if (texts.length !== values.length) {
      return [`${texts.length} values, expected ${values.length}`];
    }
    return texts.flatMap((text, row) => (text === values[row] ? [] : [`row ${row}: ${text}, expected ${values[row]}`]));
  }
  if (first === undefined || last === undefined || sha256 === undefined) {
    return ["there is nothing to compare it with"];
  }
  if (createHash("sha256").update(texts.join("\n")).digest("hex") === sha256) {
    return [];
  }
  const shown = [...texts.slice(0, first.length), "…", ...texts.slice(-last.length)].join(", ");
  return [`${shown}; expected ${[...first, "…", ...last].join(", ")}`];
}
