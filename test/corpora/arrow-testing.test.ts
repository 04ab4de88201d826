import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { readPieces } from "#src/formats/arrow/batches.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { arrowFooters } from "#src/formats/arrow/decoder.js";
import type { ShardFooter } from "#src/formats/format.js";
import { JobError } from "#src/base/errors.js";
import { projectFolder } from "../support/cli.js";
import { arrowCorpus, arrowNote, fuzzedOfArrow, goldenOfArrow } from "./corpus.js";
import { plainValue, type Twin, twinValues } from "./arrow-twin.js";

/** What is known of a golden file. */
interface ExpectedArrow {
  readonly rows?: number;
  /** What it is refused with; absent: it is read. */
  readonly says?: string;
  /** Columns that no job can use, and their type. */
  readonly refused?: Readonly<Record<string, string>>;
}

const expected = JSON.parse(
  readFileSync(join(projectFolder, "fixtures/corpora/arrow-testing.expected.json"), "utf8"),
) as Readonly<Record<string, ExpectedArrow>>;

/** What a golden file is found to be, and where it is not its JSON twin. */
async function seen(name: string): Promise<{ found: ExpectedArrow; differences: string[] }> {
  const path = join(arrowCorpus, name);
  const file = { path, name: path };
  const open = openShards();
  const differences: string[] = [];
  try {
    let footer: ShardFooter | undefined;
    for await (const one of arrowFooters([file], open)) {
      footer = one;
    }
    const columns = footer?.schema.columns ?? [];
    const used = columns.flatMap(({ name: column, type }, index) =>
      type === undefined ? [] : [{ column, type, index }],
    );
    const values = used.map((): unknown[] => []);
    await using shard = await open(file);
    const request = {
      rowStart: 0,
      rowEnd: footer?.rows ?? 0,
      columns: new Map(used.map(({ column }) => [column, undefined])),
    };
    for await (const piece of readPieces(shard.bytes, shard.index, request)) {
      for (const [place, { column, type }] of used.entries()) {
        for (let row = 0; row < piece.rowEnd - piece.rowStart; row += 1) {
          values[place]?.push(plainValue(type, piece.columns.get(column) as never, row));
        }
      }
    }
    const twin = JSON.parse(gunzipSync(readFileSync(path.replace(/\.[^./]+$/, ".json.gz"))).toString()) as Twin;
    for (const [place, { column, index }] of used.entries()) {
      for (const [row, value] of twinValues(twin, index).entries()) {
        const [is, due] = [values[place]?.[row], value].map((one) => JSON.stringify(one));
        differences.push(...(is === due ? [] : [`${column}, row ${row}: ${is}, expected ${due}`]));
      }
      if (values[place]?.length !== footer?.rows) {
        differences.push(`${column}: ${values[place]?.length} rows`);
      }
    }
    const refused = Object.fromEntries(
      columns.flatMap(({ name: column, type, sourceType }) => (type === undefined ? [[column, sourceType]] : [])),
    );
    const found = { rows: footer?.rows ?? -1, ...(Object.keys(refused).length === 0 ? {} : { refused }) };
    return { found, differences };
  } catch (error) {
    if (error instanceof JobError) {
      return { found: { says: error.message.replace(path, "<file>") }, differences };
    }
    throw error;
  }
}

const pinned = Object.keys(expected);
const golden = goldenOfArrow(pinned);

describe(`apache/arrow-testing${arrowNote}`, () => {
  test("has golden files that are pinned, and of the whole corpus all that are", () => {
    expect(golden.filter((name) => !pinned.includes(name))).toEqual([]);
    expect(pinned.filter((name) => arrowNote === "" && !golden.includes(name))).toEqual([]);
    expect(golden.length).toBeGreaterThan(40);
  });

  test.each(golden)("%s is read as its JSON twin has it, or refused", async (name) => {
    const { found, differences } = await seen(name);

    expect(differences.slice(0, 5)).toEqual([]);
    expect(found).toEqual(expected[name]);
  });

  test("has no file that crashes, hangs or takes memory", { timeout: 300_000 }, async () => {
    const files = fuzzedOfArrow();
    expect(files.length).toBeGreaterThan(10);
    const child = join(projectFolder, "test/corpora/arrow-child.mjs");

    const { stdout } = await promisify(execFile)(
      process.execPath,
      ["--max-old-space-size=400", child, ...files.map((name) => join(arrowCorpus, name))],
      { timeout: 240_000 }, // of a hang
    );

    const { maxRssMb, ended } = JSON.parse(stdout) as {
      maxRssMb: number;
      ended: readonly { path: string; cpuMs: number; code: string }[];
    };
    expect(ended).toHaveLength(files.length);
    expect(new Set(ended.map(({ code }) => code))).toEqual(new Set(["SHARD_CORRUPT"]));
    expect(ended.filter(({ cpuMs }) => cpuMs > 10_000)).toEqual([]);
    expect(maxRssMb).toBeLessThan(600);
  });
});
