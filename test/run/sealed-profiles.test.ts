import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import { lastJson, type Nights, nightlyJob } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { useS3 } from "../support/s3.js";
import { useCredentials } from "../support/s3-output.js";

const s3 = useS3();
const postgres = usePostgres();
const date = "2026-11-21";

/**
 * Of 333 rows in five spans, 28 have a value that at most 10 rows of each span have; one row has another. The plan has the
 * expression, so that does not have the names.
 */
const often = "Zanzibar";
const rare = "Quixotia";
const inSql = (name: string): string => `'${name.slice(0, 4)}' || '${name.slice(4)}'`;
const island = `CASE WHEN row_id = 5 THEN ${inSql(rare)} WHEN row_id % 60 < 5 THEN ${inSql(often)} ELSE island END`;
const job: SpecOverrides = {
  commit_rows: 70,
  input: { columns: { island, third: "if(row_id < 9, 7, row_id % 3)" } },
  output: { columns: ["row_id", "third"] },
};

const oftenInStats = JSON.stringify({ value: often, rows: 28 });

/** A target, and all that it stores, by name. */
interface Place extends AsyncDisposable {
  readonly output: SpecOverrides["output"];
  stored(): Promise<ReadonlyMap<string, string>>;
}

async function onDisk(): Promise<Place> {
  const scratch = await scratchFolder();
  return {
    output: { parquet: { path: join(scratch.path, "dt=${ds}") } },
    async stored() {
      const names = await readdir(scratch.path, { recursive: true, withFileTypes: true });
      const files = names.filter((name) => name.isFile()).map((name) => join(name.parentPath, name.name));
      return new Map(await Promise.all(files.map(async (file) => [file, await readFile(file, "latin1")] as const)));
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function inS3(): Promise<Place> {
  useCredentials();
  const scratch = await scratchFolder();
  const bucket = await s3.server().createBucket();
  const endpoint = `http://127.0.0.1:${s3.server().port}`;
  return {
    output: {
      parquet: { path: `s3://${bucket.name}/dt=\${ds}`, endpoint, spool: { path: join(scratch.path, "spool") } },
    },
    async stored() {
      const keys = await bucket.keys();
      const read = keys.map(async (key) => [key, Buffer.from(await bucket.get(key)).toString("latin1")] as const);
      return new Map(await Promise.all(read));
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function inPostgres(): Promise<Place> {
  const database = await postgres.server().createDatabase();
  return {
    output: { parquet: undefined, postgres: { url: database.url, table: "scores.predictions", mode: "append" } },
    async stored() {
      const tables = await database.query(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname IN ('scores', 'infer_batch')",
      );
      const stored = new Map<string, string>();
      for (const { name } of tables) {
        const rows = await database.query(`SELECT t::text FROM ${String(name)} t`);
        stored.set(String(name), rows.map((row) => String(row["t"])).join("\n"));
      }
      return stored;
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

/** What stores the profile of the run, and the verdict on it. */
const aboutRun = /profile\.json$|verdict\.json$|\.finishes$|\.verdicts$/;

async function expectNoNames(place: Place): Promise<void> {
  const stored = await place.stored();
  const naming = (text: string): string[] => [...stored].flatMap(([name, all]) => (all.includes(text) ? [name] : []));
  expect([...stored.keys()].filter((name) => name.includes("profile_key") || name.includes("profile.key"))).toEqual([]);
  expect(naming(rare)).toEqual([]);
  expect(naming(often).filter((name) => !aboutRun.test(name))).toEqual([]);
  expect(naming(often)).toContainEqual(expect.stringMatching(/profile\.json$|\.finishes$/));
  const slices = [...stored].flatMap(([name, all]) => (aboutRun.test(name) ? (all.match(/third=\d/g) ?? []) : []));
  expect(new Set(slices)).toEqual(new Set(["third=0", "third=1", "third=2"]));
  const withSpans = [...stored].filter(([name]) => /\.parquet$|\.spans$/.test(name));
  expect(withSpans.length).toBeGreaterThan(0);
  for (const [name, text] of withSpans) {
    expect(text, name).toMatch(/"{1,2}sealed"/); // doubled in the text of a row
    expect(text, name).not.toMatch(/"features"|"slices"/);
  }
}

async function statsOf(nights: Nights): Promise<Readonly<Record<string, unknown>>> {
  const stats = await nights.night("stats", date, "--json");
  expect(stats.code, stats.stderr).toBe(0);
  const { status: _status, ...profiles } = lastJson(stats);
  return profiles;
}

const nightsAt = (folder: string, place: Place, checks: object): Promise<Nights> =>
  nightlyJob(folder, { ...job, checks, output: { ...job.output, ...place.output } }, "penguins-pipeline");

async function expectPublished(place: Place): Promise<void> {
  await using scratch = await scratchFolder();
  const nights = await nightsAt(scratch.path, place, { slices: ["third"] });
  const run = await nights.night("run", date);
  expect(run.code, run.stderr).toBe(0);
  await expectNoNames(place);
  expect(JSON.stringify((await statsOf(nights))["features"])).toContain(oftenInStats);
}

/** A held run needs its key: the names are there until it is approved. */
async function expectApproved(place: Place): Promise<void> {
  await using scratch = await scratchFolder();
  const nights = await nightsAt(scratch.path, place, { slices: ["third"], sql: { few: "count(*) < 5" } });
  expect((await nights.night("run", date)).code).toBe(67);
  const held = await statsOf(nights);
  expect(JSON.stringify(held["features"])).toContain(oftenInStats);
  expect(JSON.stringify(held)).not.toContain(rare);
  expect((await nights.night("approve", date)).code).toBe(0);
  await expectNoNames(place);
  expect(await statsOf(nights)).toEqual(held);
  expect((await nights.night("run", date)).code).toBe(0);
  expect(await statsOf(nights)).toEqual(held);
}

const published = "no span of a published run names a value of a feature that is rare in the span";
const approved =
  "no span of an approved run names a value of a feature, and the run shows what it showed while it was held";

test(`${published}: files`, async () => {
  await using place = await onDisk();
  await expectPublished(place);
});

test(`${approved}: files`, async () => {
  await using place = await onDisk();
  await expectApproved(place);
});

test("an erasure keeps profiles sealed, and shows the features of the run that it replaces, however often rows are erased", async () => {
  await using place = await onDisk();
  await using scratch = await scratchFolder();
  const nights = await nightsAt(scratch.path, place, { slices: ["third"] });
  expect((await nights.night("run", date)).code).toBe(0);
  const { features } = await statsOf(nights);
  for (const key of ["50", "51"]) {
    const keys = join(scratch.path, `keys-${key}`);
    await writeFile(keys, key);
    const erased = await nights.night("erase", date, "--keys", keys, "--key", "row_id", "--json");
    expect(erased.code, erased.stderr).toBe(0);
    expect(erased.stdout).toContain('"rows":1');
    await expectNoNames(place);
    expect((await statsOf(nights))["features"]).toEqual(features);
  }
});

s3.describe("in S3", () => {
  test(`${published}: S3`, async () => {
    await using place = await inS3();
    await expectPublished(place);
  });

  test(`${approved}: S3`, async () => {
    await using place = await inS3();
    await expectApproved(place);
  });
});

postgres.describe("in Postgres", () => {
  test(`${published}: Postgres`, async () => {
    await using place = await inPostgres();
    await expectPublished(place);
  });

  test(`${approved}: Postgres`, async () => {
    await using place = await inPostgres();
    await expectApproved(place);
  });
});
