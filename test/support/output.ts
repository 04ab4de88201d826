import { createHash } from "node:crypto";
import { lstat, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { differences } from "./golden.js";
import { type Row, readFiles } from "./parquet.js";

/** Names of the parts in an output folder, in span order. */
export async function partNames(folder: string): Promise<string[]> {
  return (await namesIn(folder)).filter((name) => name.endsWith(".parquet")).toSorted();
}

export function spanOfName(name: string): number {
  return Number(/^part-(\d+)\./.exec(name)?.[1]);
}

export async function outputRows(folder: string): Promise<Row[]> {
  return await readFiles((await partNames(folder)).map((name) => join(folder, name)));
}

export function without(name: string, rows: readonly Row[]): Row[] {
  return rows.map((row) => Object.fromEntries(Object.entries(row).filter(([column]) => column !== name)));
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") {
      return [];
    }
    throw error;
  }
}

/** Every file and folder below `folder` with what changes when it is touched. */
export async function listing(folder: string): Promise<string[]> {
  const names = await readdir(folder, { recursive: true });
  const lines = [".", ...names.toSorted()].map(async (name) => {
    const { ino, size, mode, mtimeNs } = await lstat(join(folder, name), { bigint: true });
    return `${name} inode ${ino} size ${size} mode ${mode.toString(8)} mtime ${mtimeNs}`;
  });
  return await Promise.all(lines);
}

/** Lists a target without the file that says why attempts ended, and without the run's folder that it is in. */
export async function listingWithoutErrors(folder: string): Promise<string[]> {
  return (await listing(folder)).filter((line) => !/^_infer-batch\/[^/]+(\/errors\.json)? inode/.test(line));
}

interface ManifestText {
  readonly run_id: string;
  readonly rows: number;
  readonly parts: readonly { file: string; span: number; rows: number; size_bytes: number; sha256: string }[];
}

async function readManifest(folder: string): Promise<ManifestText> {
  return JSON.parse(await readFile(join(folder, "_manifest.json"), "utf8")) as ManifestText;
}

/** What is wrong with a finished run's folder as a reader sees it: names, manifest, digests. Empty when nothing is. */
export async function faultsOfFinished(folder: string, rows: number): Promise<string[]> {
  const faults: string[] = [];
  const names = await namesIn(folder);
  if (!names.includes("_SUCCESS")) {
    faults.push("no _SUCCESS");
  }
  faults.push(...names.filter((name) => !/^part-\d{5,}\..+\.parquet$/.test(name) && !name.startsWith("_")));
  const manifest = await readManifest(folder);
  const listed = manifest.parts.map(({ file }) => file);
  const there = await partNames(folder);
  if (listed.join() !== there.join()) {
    faults.push(`parts ${there.join()}, manifest ${listed.join()}`);
  }
  for (const { file, size_bytes, sha256, span } of manifest.parts) {
    const bytes = await readFile(join(folder, file));
    if (
      bytes.length !== size_bytes ||
      createHash("sha256").update(bytes).digest("hex") !== sha256 ||
      spanOfName(file) !== span
    ) {
      faults.push(`the manifest is wrong about ${file}`);
    }
  }
  const sum = manifest.parts.reduce((total, part) => total + part.rows, 0);
  if (manifest.rows !== rows || sum !== rows) {
    faults.push(`the manifest says ${manifest.rows} rows, ${sum} in parts; expected ${rows}`);
  }
  return faults;
}

export interface Expected {
  readonly golden: readonly Row[];
  readonly commitRows: number;
}

/** Each part must be whole and right, `_SUCCESS` must not come before all parts, and readers must see parts only. */
export async function faultsAtAnyMoment(folder: string, { golden, commitRows }: Expected): Promise<string[]> {
  const names = await namesIn(folder);
  const parts = await partNames(folder);
  const faults = names
    .filter((name) => !name.startsWith("_") && !parts.includes(name))
    .map((name) => `a reader sees ${name}`);
  for (const name of parts) {
    const start = spanOfName(name) * commitRows;
    try {
      const rows = await readFiles([join(folder, name)]);
      faults.push(...differences(rows, golden.slice(start, start + commitRows)).map((text) => `${name}: ${text}`));
    } catch (error) {
      faults.push(`${name} cannot be read: ${String(error)}`);
    }
  }
  if (names.includes("_SUCCESS")) {
    const planned = Math.ceil(golden.length / commitRows);
    if (parts.length !== planned) {
      faults.push(`_SUCCESS is there with ${parts.length} of ${planned} parts`);
    }
    faults.push(...(await faultsOfFinished(folder, golden.length)));
  }
  return faults;
}
