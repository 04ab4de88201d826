import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import { fewRows, lastJson, nightAt, nightlyJob, publishedRun } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { useCredentials } from "../support/s3-output.js";
import { mirror } from "../support/s3-target.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";

/** What a reader finds: the rows of each run, oldest run first, as in "442+50"; "nothing": it must not read now. */
type Look = string;

/** What a reader of a folder finds that follows `_SUCCESS`: the rows of all parts, if `_SUCCESS` is the same after that. */
async function lookInFolder(folder: string): Promise<Look> {
  const runId = await publishedRun(folder);
  const rows = runId === undefined ? [] : await outputRows(folder).catch(() => []);
  if (runId === undefined || (await publishedRun(folder)) !== runId) {
    return "nothing";
  }
  const ids = new Map<unknown, unknown[]>();
  for (const { run_id: run, id } of rows) {
    ids.set(run, [...(ids.get(run) ?? []), id]);
  }
  return lookOf([...ids].map(([run, all]) => ({ run, n: all.length, ids: new Set(all).size })));
}

/** The same of a folder in a bucket. `scratch`: where it is copied to. */
async function lookInBucket(bucket: Bucket, path: string, scratch: string): Promise<Look> {
  const success = async (): Promise<string> => {
    const bytes = await bucket.get(`${path}/_SUCCESS`).catch(() => new Uint8Array());
    return Buffer.from(bytes).toString("utf8");
  };
  const folder = await mkdtemp(join(scratch, "mirror-"));
  const before = await success();
  try {
    await mirror(bucket, path, folder);
  } catch {
    return "nothing"; // an object that was listed is gone: the reader looks again
  }
  return (await success()) === before ? await lookInFolder(folder) : "nothing";
}

/** What a reader of `scores.predictions` finds, without the rows of runs whose params have `date`. */
async function lookInTable(reader: Database, date: string): Promise<Look> {
  return lookOf(
    await reader.query(
      `SELECT run_id AS run, count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions
        WHERE run_id NOT IN (SELECT run_id FROM infer_batch.runs WHERE params::text LIKE '%${date}%') GROUP BY 1`,
    ),
  );
}

/** The rows of each run, as `run_id` of each row tells; a key that comes twice in a run is a fault. */
function lookOf(rows: readonly Readonly<Record<string, unknown>>[]): Look {
  return rows
    .toSorted(({ run: one }, { run: other }) => numberOf(one) - numberOf(other))
    .map(({ run, n, ids }) => (n === ids ? String(n) : `${String(n)} rows of ${String(ids)} ids in ${String(run)}`))
    .join("+");
}

const numberOf = (runId: unknown): number => Number(/-r(\d+)$/.exec(String(runId))?.[1] ?? 1);

const s3 = useS3();
const postgres = usePostgres();

const [before, date] = ["2026-11-20", "2026-11-21"];
const rounds = torture ? 25 : 1;

interface Place {
  readonly output: SpecOverrides["output"];
  look(): Promise<Look>;
  /** What readers find if neither the held run nor a new run is published. */
  readonly nothing: Look;
  /** What they find when the held run, of 50 rows, was published, and then a new run of 442 rows. */
  readonly both: Look;
  /** Whether rows of a new run are refused once the held run is published. */
  readonly adds: boolean;
}

/** Lets approve, discard, a new run and a plain run race for a held run, with a reader that polls meanwhile. Returns the decision. */
async function raceIn(folder: string, place: Place, seed: number): Promise<string> {
  const nights = await nightlyJob(folder, { commit_rows: 150, output: { lineage: true, ...place.output } });
  await expectEnd(nights.night("run", before), 0);
  await nights.rewrite(fewRows);
  const held = await expectEnd(nights.night("run", date, "--json"), 67);
  const runId = String(lastJson(held)["run_id"]);
  await nights.rewrite({});
  const night = nightAt(folder, date);
  const random = randomOf(seed);
  const seen = new Set<Look>();
  const stop = { now: false };
  const reading = (async () => {
    while (!stop.now) {
      seen.add(await place.look());
      await sleep(torture ? 2 : 15);
    }
  })();
  // A new run decides too. Without it, the decision of a person is what readers find in the end.
  const racers: [string, ...string[]][] = [
    ["approve", "--run", runId],
    ["discard", "--run", runId],
    ["run", ...(seed % 2 === 0 ? [] : ["--new-run"])],
    ["run"],
  ];
  const results = await Promise.all(
    racers.map(async ([command, ...args], index) => {
      // Each of them is the first in some rounds.
      await sleep(index === Math.floor(seed / 2) % racers.length ? 0 : random() * 400);
      return await runCli(night.args(command, ...args));
    }),
  );
  stop.now = true;
  await reading;
  const told = results.map(({ code, stderr }, index) => `${racers[index]?.join(" ")}: ${code}\n${stderr}`).join("\n");
  const [approve, discard, newRun, plain] = results.map(({ code }) => code);
  expect([0, 66], told).toContain(approve);
  expect([0, 66], told).toContain(discard);
  expect(place.adds ? [0, 64, 66, 67] : [0, 66, 67], told).toContain(newRun);
  expect([0, 66, 67], told).toContain(plain);
  expect(approve === 0 && discard === 0, told).toBe(false);

  const end = lastJson(await night.run("status", "--json"));
  const look = await place.look();
  const now = `${told}\nin the end: ${JSON.stringify(end)}\nseen: ${[...seen].join(", ")}`;
  if (approve === 0) {
    expect([place.both, "50"], now).toContain(look);
  } else if (discard === 0) {
    expect(seen.has("50"), now).toBe(false);
  }
  if (end["run_id"] === runId) {
    expect([look, end["status"]], now).toEqual(discard === 0 ? [place.nothing, "discarded"] : ["50", "published"]);
  } else {
    expect([end["run_id"], end["status"]], now).toEqual([`${runId}-r2`, "published"]);
    expect(["442", place.both], now).toContain(look);
  }
  const allowed = new Set([place.nothing, "nothing", "50", "442", place.both]);
  expect(
    [...seen].filter((one) => !allowed.has(one)),
    now,
  ).toEqual([]);
  return `${approve === 0 ? "approved" : discard === 0 ? "discarded" : "neither"}: ${look}`;
}

s3.describe("in S3,", () => {
  test.skipIf(!torture)(
    `approve, discard, a new run and a plain run that race for a held run in S3 agree on one decision (${rounds} rounds)`,
    {
      timeout: 1_800_000,
    },
    async () => {
      useCredentials();
      const ends: string[] = [];
      for (let round = 1; round <= rounds; round += 1) {
        await using scratch = await scratchFolder();
        const bucket = await s3.server().createBucket();
        const path = `s3://${bucket.name}/lake/dt=\${ds}`;
        const endpoint = `http://127.0.0.1:${s3.server().port}`;
        const output = { parquet: { path, endpoint, spool: { path: "spool" } } };
        const look = (): Promise<Look> => lookInBucket(bucket, `lake/dt=${date}`, scratch.path);
        ends.push(await raceIn(scratch.path, { output, look, nothing: "nothing", both: "442", adds: false }, round));
      }
      console.info(ends.join(", "));
    },
  );
});

postgres.describe("in Postgres,", () => {
  const cases = [
    { mode: "replace", both: "442", nothing: "" },
    { mode: "upsert", both: "442", nothing: "" },
    { mode: "append", both: "50+442", nothing: "" },
  ] as const;

  test.each(torture ? cases : cases.slice(2))(
    `approve, discard, a new run and a plain run that race for a held run agree on one decision: $mode (${rounds} rounds)`,
    { timeout: 1_800_000 },
    async ({ mode, both, nothing }) => {
      const ends: string[] = [];
      for (let round = 1; round <= rounds; round += 1) {
        await using scratch = await scratchFolder();
        await using database = await postgres.server().createDatabase();
        await using reader = await postgres.server().open(database.name);
        const key = mode === "append" ? {} : { key: ["id"] };
        const table = { url: database.url, table: "scores.predictions", mode, ...key, timeouts: { lock: 1 } };
        const output = { parquet: undefined, postgres: table };
        const look = (): Promise<Look> => lookInTable(reader, before);
        ends.push(await raceIn(scratch.path, { output, look, nothing, both, adds: mode === "append" }, round));
      }
      console.info(ends.join(", "));
    },
  );
});
