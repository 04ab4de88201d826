import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { projectFolder } from "../support/cli.js";

/** Where other projects' files lie: beside the checkout, unless a variable says otherwise. */
const corpora = process.env["INFER_BATCH_CORPORA"] ?? join(projectFolder, "../shared/corpora");
export const corpusFolder = join(corpora, "parquet-testing");
export const corpusIsThere = existsSync(corpusFolder);
export const arrowCorpus = join(corpora, "arrow-testing/data");
export const arrowCorpusIsThere = existsSync(arrowCorpus);

/** What a command does with a file: exit code, message (or how it starts) and hint, or "read". */
export type Expected = "read" | { readonly exit: number; readonly says: string; readonly hint: string };

/** What is known of a file of the corpus; docs/corpora.md shows it. */
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

/** Every file of the Parquet corpus, by its path in it. */
export function filesOfCorpus(): string[] {
  return filesIn(corpusFolder);
}

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
