import { copyFile, mkdir, readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { listing, outputRows, partNames } from "../support/output.js";
import { tinyParquet } from "../support/parquet-bytes.js";
import { writeRows } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";
import { patch, shardFixture, type ShardJob, shardJob } from "../support/shards.js";
import { shownCli } from "../support/shown.js";
import { plannedTime } from "../support/world.js";

/** Three shards of 1200 rows, in row groups of 400; what is done to them, and all that the run then says. */
async function saidOf(change: (job: ShardJob) => Promise<unknown>, overrides: SpecOverrides = {}): Promise<string> {
  await using folder = await scratchFolder();
  const job = await shardJob(folder.path, { a: "plain", b: "plain", c: "plain" }, { commit_rows: 400, ...overrides });
  await change(job);
  const before = await listing(folder.path);
  const said = await shownCli(["run", job.spec, "--quiet"], folder.path);
  // Nothing is planned, so nothing is written.
  expect(await listing(folder.path)).toEqual(before);
  return said;
}

const footerOf = (bytes: Buffer): number => bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8);

/** Changes the second shard, and leaves the others. */
const b = (change: (path: string) => Promise<unknown>) => (job: ShardJob) => change(job.shard("b"));
const bytesOf = (change: (bytes: Buffer) => unknown) => b((path) => patch(path, (bytes) => void change(bytes)));
const tiny = (rows: number): Uint8Array => tinyParquet({ values: [1, 2, 3], rows, groupRows: rows, chunkValues: rows });
const inAll = (write: (path: string) => Promise<unknown>) => (job: ShardJob) =>
  Promise.all(["a", "b", "c"].map((name) => write(job.shard(name))));

const again = "write the shard again, or take it out of input.path";
const faulty = `the footer is damaged, or its writer is faulty; ${again}`;
const cutOff = `the file was cut off, or is still being written; ${again}`;
const alike =
  "the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path";
const footer = "reading the footer of <folder>/in/b.parquet";

interface Refusal {
  readonly what: string;
  readonly change: (job: ShardJob) => Promise<unknown>;
  readonly overrides?: SpecOverrides;
  readonly code?: number;
  readonly says: string;
  readonly hint?: string;
}

test.each<Refusal>([
  {
    what: "whose footer is damaged",
    change: bytesOf((bytes) => bytes.fill(0xff, footerOf(bytes) + 1000, footerOf(bytes) + 1020)),
    says: `${footer}: it is damaged (byte 1001 of 2164: a value has type 15, where type 1 to 13 is due)`,
    hint: again,
  },
  {
    what: "with one wrong bit in its footer's row count",
    change: bytesOf((bytes) => {
      // Thrift's compact protocol: field 3, an i64; 1200 as a zigzag varint becomes 1072.
      const at = bytes.indexOf(Buffer.from([0x16, 0xe0, 0x12]), footerOf(bytes));
      expect(at).toBeGreaterThan(0);
      bytes[at + 2] = 0x10;
    }),
    says: `${footer}: it states 1072 rows, but its row groups state 1200`,
    hint: faulty,
  },
  {
    what: "that promises rows which so few bytes cannot hold",
    change: b((path) => writeFile(path, tiny(2 ** 40))),
    says: `${footer}: row group 0, column \`x\` cannot hold 1099511627776 values in 41 bytes`,
    hint: faulty,
  },
  {
    what: "that was cut off in its middle",
    change: b((path) => truncate(path, 12_345)),
    says: `${footer}: it begins as Parquet, but its end is missing (12345 bytes)`,
    hint: cutOff,
  },
  {
    what: "whose last byte is missing",
    change: b(async (path) => truncate(path, (await stat(path)).size - 1)),
    says: `${footer}: it begins as Parquet, but its end is missing (25621 bytes)`,
    hint: cutOff,
  },
  {
    what: "whose beginning is missing",
    change: b(async (path) => writeFile(path, (await readFile(path)).subarray(-1000))),
    says: `${footer}: it claims to have a footer of 2164 bytes, in a file of 1000`,
    hint: `the file was damaged, or cut at its beginning; ${again}`,
  },
  {
    what: "that has zero bytes",
    change: b((path) => truncate(path, 0)),
    says: `${footer}: the file is empty (0 bytes)`,
    hint: `its writer was stopped, perhaps; ${again}`,
  },
  {
    what: "that is a text",
    change: b((path) => writeFile(path, "id,x\n1,2\n")),
    says: `${footer}: it is not Parquet: it begins with "id,x", not "PAR1"`,
    hint: `shards are Parquet, or Arrow under names that end in .arrow; ${again}`,
  },
  {
    what: "that is encrypted",
    change: b((path) => copyFile(shardFixture("encrypted-footer"), path)),
    says: `${footer}: it is encrypted`,
    hint: "encrypted files are not supported; write the shard without encryption",
  },
  {
    what: "of which a column that the job uses is encrypted",
    change: b((path) => copyFile(shardFixture("encrypted-column"), path)),
    says: "planning: column `x` of <folder>/in/b.parquet is encrypted",
    hint: "encrypted columns are not supported; write the shard without encryption",
  },
  {
    what: "that is a folder, named by the spec,",
    change: b((path) => rm(path).then(() => mkdir(path))),
    overrides: { input: { path: "in/b.parquet" } },
    code: 75,
    says: "planning small: no file matches in/b.parquet",
  },
  {
    what: "that lacks a column",
    change: b((path) => writeRows(path, `SELECT * EXCLUDE (x) FROM '${shardFixture("plain")}'`)),
    says: "planning: column `x` is missing in <folder>/in/b.parquet, but float64 in <folder>/in/a.parquet",
    hint: alike,
  },
  {
    what: "whose column has another type",
    change: b((path) => writeRows(path, `SELECT * REPLACE (k::BIGINT AS k) FROM '${shardFixture("plain")}'`)),
    says: "planning: column `k` is int64 in <folder>/in/b.parquet, but int32 in <folder>/in/a.parquet",
    hint: alike,
  },
  {
    what: "without rows, like all others,",
    change: inAll((path) => writeRows(path, `FROM '${shardFixture("plain")}' LIMIT 0`)),
    code: 75,
    says: "planning small: in/*.parquet has 0 rows in 3 files, input.min_rows is 1",
  },
  {
    what: "with a page that does not match its checksum, with input.verify: full,",
    change: b(async (path) => {
      await copyFile(shardFixture("checked"), path);
      await patch(path, (bytes) => {
        bytes[9000] = (bytes[9000] ?? 0) ^ 1;
      });
    }),
    overrides: { input: { verify: "full" } },
    says: "checking <folder>/in/b.parquet: row group 1, column `x`: the page at byte 8918 does not match its checksum",
    hint: "the shard was damaged after it was written: fetch it again from where it came, or write it again",
  },
  {
    what: "with rows for too many spans to keep",
    change: inAll((path) => writeFile(path, tiny(2 ** 30))),
    overrides: { commit_rows: 1, output: { columns: [] } },
    code: 64,
    says: "planning small: 3,221,225,472 rows in spans of 1 row would be 3,221,225,472 parts, at most 16777216 can be kept",
    hint: "raise commit_rows; if the number of rows is wrong, `infer-batch inspect` shows the rows that a shard states",
  },
])("a shard $what cannot be planned, and the message says what to do", async (refusal) => {
  const { change, overrides, code = 65, says, hint } = refusal;
  const advice = hint === undefined ? "" : `  hint: ${hint}\n`;
  expect(await saidOf(change, overrides)).toBe(`exit ${code}\n--- stderr\nerror: ${says}\n${advice}`);
});

describe("a shard that can be planned though others are not like it", () => {
  test("its columns come in another order, among others", async () => {
    const job = await shardJob(scratch.path, { a: "plain" });
    await writeRows(job.shard("b"), `SELECT 1 AS more, l, s, x, id, k, 'x' AS last FROM '${shardFixture("plain")}'`);

    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");

    const rows = await outputRows(job.out);
    expect(rows.slice(1200)).toEqual(rows.slice(0, 1200));
  });

  test("an encrypted column is not used", async () => {
    const job = await shardJob(scratch.path, { a: "encrypted-column" }, { output: { columns: ["s"] } });
    const binding = { path: "model.onnx", inputs: { x: ["id"] } };
    await job.rewrite({ model: binding, output: { columns: ["s"] } });

    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");

    expect((await outputRows(job.out)).map(({ score }) => score)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});

/** Scores shards by path below `in/`, a SELECT each, and carries `id` and `carried`; what it refuses, without the folder. */
async function refusalOver(
  folder: string,
  shards: Readonly<Record<string, string>>,
  carried: string,
): Promise<string | undefined> {
  const input = { path: Object.keys(shards).map((path) => `in/${path}`) };
  const output = { columns: ["id", carried], parquet: { path: "out" } };
  const { spec } = await smallJob(folder, { model: identity, select: "SELECT 1", input, output });
  for (const [path, select] of Object.entries(shards)) {
    await mkdir(dirname(join(folder, "in", path)), { recursive: true });
    await writeRows(join(folder, "in", path), select);
  }
  return (await refusalOf(scoreHere(spec))).replaceAll(`${folder}/`, "");
}

const plain = "SELECT 1::BIGINT AS id, 0.5::DOUBLE AS x";
const hint =
  "hint: the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path";

describe("a column that one shard lacks ends the run with 65, in any order of the shards", () => {
  test.each([
    { what: "a folder's", here: "in/dt=1/b.parquet", type: "utf8, from the folder name", lacks: "a.parquet" },
    { what: "a folder's", here: "in/dt=1/b.parquet", type: "utf8, from the folder name", lacks: "z.parquet" },
    { what: "the file's", here: "in/b.parquet", type: "date32", lacks: "a.parquet" },
    { what: "the file's", here: "in/b.parquet", type: "date32", lacks: "z.parquet" },
  ])("$what, missing in $lacks", async ({ here, type, lacks }) => {
    const dated = type === "date32" ? `${plain}, DATE '2026-01-31' AS dt` : plain;

    const said = await refusalOver(scratch.path, { [here.slice(3)]: dated, [lacks]: plain }, "dt");

    expect(said).toBe(
      `65 SCHEMA_MISMATCH\nplanning: column \`dt\` is missing in in/${lacks}, but ${type} in ${here}\n${hint}`,
    );
  });

  test("a column that has another type in one shard ends the run with 65", async () => {
    const text = "SELECT 1::BIGINT AS id, 'x' AS x";

    expect(await refusalOver(scratch.path, { "a.parquet": text, "b.parquet": plain }, "x")).toBe(
      `65 SCHEMA_MISMATCH\nplanning: column \`x\` is utf8 in in/a.parquet, but float64 in in/b.parquet\n${hint}`,
    );
  });

  test("a column that no shard has ends the run with 64", async () => {
    expect(await refusalOver(scratch.path, { "k=1/a.parquet": plain, "b.parquet": plain }, "dt")).toMatch(
      /^64 CONTRACT\n.*output\.columns names column `dt`, which is not there\n/,
    );
  });
});

const laterTime = new Date("2026-01-02");

describe("a shard whose pages are damaged", () => {
  const damages = [
    { what: "a compressed page", column: "s", from: 21_000, group: 2, parts: 8 },
    { what: "a page of a column without NULLs", column: "id", from: 7906, group: 1, parts: 7 },
    { what: "the header of a page", column: "s", from: 13_022, group: 1, parts: 7 },
  ] as const;

  test.each(damages)(
    "($what) ends the run when all spans before its row group are committed",
    async ({ column, from, group, parts }) => {
      const job = await shardJob(scratch.path, { a: "plain", b: "plain", c: "plain" }, { commit_rows: 400 });
      const whole = await patch(job.shard("c"), (bytes) => bytes.fill(0xa5, from, from + 40));

      const said = await shownCli(["run", job.spec, "--quiet"], scratch.path);

      const rows = `rows ${group * 400} to ${group * 400 + 399}`;
      expect(said).toContain(`reading <folder>/in/c.parquet: row group ${group} (${rows}), column \`${column}\`: `);
      expect(said.replaceAll(/`: .*/g, "`: <DuckDB's words>")).toMatchSnapshot();
      expect((await partNames(job.out)).length).toBe(parts);

      // The same bytes with the same size and time are the planned file again.
      await writeFile(job.shard("c"), whole);
      await utimes(job.shard("c"), plannedTime, plannedTime);
      expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
      const found = await outputRows(job.out);
      expect(found.length).toBe(3600);
      expect(found.slice(2400)).toEqual(found.slice(0, 1200));
    },
  );

  test("a shard whose pages were damaged is refused with 66 if another file than the planned one takes its place", async () => {
    const job = await shardJob(scratch.path, { a: "plain", b: "plain" }, { commit_rows: 400 });
    const whole = await patch(job.shard("b"), (bytes) => bytes.fill(0xa5, 21_000, 21_040));
    await shownCli(["run", job.spec, "--quiet"], scratch.path);
    await writeFile(job.shard("b"), whole);
    await utimes(job.shard("b"), laterTime, laterTime);

    expect(`\n${await shownCli(["run", job.spec, "--quiet"], scratch.path)}`).toMatchInlineSnapshot(`
      "
      exit 66
      --- stderr
      error: comparing the input with the plan of this unfinished run: changed since it was planned: in/b.parquet (it has the planned 25622 bytes, but was modified 2026-01-02T00:00:00Z, planned 2026-01-01T00:00:00Z)
        hint: restore the planned file with its modification time (cp -p), and run again
          if its content has not changed, set its planned time again: touch -c -d 2026-01-01T00:00:00Z <folder>/in/b.parquet
          to abandon this run, and score with the current input, model and spec: infer-batch run <folder>/job.yaml --new-run
      "
    `);
    expect((await partNames(job.out)).length).toBe(5);
  });

  test("a damaged page without a checksum may change a value unnoticed, and input.verify: full finds it in a later attempt", async () => {
    const job = await shardJob(scratch.path, { a: "plain" }, { commit_rows: 400, input: { verify: "full" } });
    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
    await rm(join(job.out, "_SUCCESS"));
    await rm(join(job.out, "_manifest.json"));
    await rm(join(job.out, (await partNames(job.out))[2] ?? ""));
    // Inside a plain page of doubles.
    await patch(job.shard("a"), (bytes) => bytes.fill(0, 17_000, 17_002));

    const said = await shownCli(["run", job.spec, "--quiet"], scratch.path);
    expect(`\n${said}`).toMatchInlineSnapshot(`
      "
      exit 66
      --- stderr
      error: reading <folder>/in/a.parquet: its sha256 is <sha256>, planned <sha256>
        hint: its bytes changed though its size and time did not: restore the planned file; committed spans are kept
      "
    `);

    await job.rewrite({ commit_rows: 400 });
    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
  });
});
