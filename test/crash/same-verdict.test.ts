import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { expectEnd, projectFolder, runCli, runHere, type RunningCli } from "../support/cli.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import { nightlyJob, type Nights } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { useS3 } from "../support/s3.js";
import { useCredentials } from "../support/s3-output.js";
import { torture } from "../support/torture.js";

const s3 = useS3();
const postgres = usePostgres();

const [before, date] = ["2026-11-20", "2026-11-21"];
/** The numbers of committed spans at which attempts are killed, one after the other, of 15. */
const kills = torture ? [1, 2, 3, 5, 6, 8, 9, 10, 12, 13] : [6];
const workers = torture ? 4 : 2;

interface Place extends AsyncDisposable {
  readonly output: SpecOverrides["output"];
  /** The number of committed spans of the night. */
  spans(): Promise<number>;
  verdict(): Promise<string>;
}

interface Found {
  readonly profile: unknown;
  readonly verdict: Readonly<Record<string, unknown>>;
}

type Way = (args: readonly string[], place: Place, nights: Nights) => Promise<void>;

const inputs =
  "malic_acid alcohol ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols proanthocyanins color_intensity hue od280_od315_of_diluted_wines proline";
const outputs = { label: "label", p: "probabilities[1]" };

/**
 * A job that has every kind of check and a challenger, one of which holds the run. Trees predict the same however rows
 * are put into batches. The challenger is given two columns in each other's place.
 */
const job: SpecOverrides = {
  commit_rows: 12,
  model: { outputs },
  input: { columns: { third: "id % 3" } },
  output: { columns: ["id", "third"] },
  checks: {
    unique: ["id"],
    slices: ["third"],
    outputs: { p: { range: [0, 1], nulls: "0%" } },
    sql: { few: "avg(p) > 0.9" },
  },
  challenger: {
    path: join(projectFolder, "fixtures/models/wine-forest.onnx"),
    inputs: { input: inputs.split(" ") },
    outputs,
  },
};

/** Carries out a night after another one, in one of several ways. Returns its profile and its verdict. */
async function foundOf(place: Place, way: Way): Promise<Found> {
  await using scratch = await scratchFolder();
  const { output, ...rest } = job;
  const nights = await nightlyJob(scratch.path, { ...rest, output: { ...output, ...place.output } }, "wine-forest");
  await expectEnd(nights.night("run", before), 67);
  await expectEnd(nights.night("approve", before), 0);
  await way(["run", nights.spec, "--param", `ds=${date}`], place, nights);
  await expectEnd(nights.night("run", date), 67);
  const stats = await expectEnd(nights.night("stats", date, "--json"), 0);
  // Who made it, when, and how long the rows took to score: all else depends on the predictions alone.
  const {
    writer: _writer,
    at: _at,
    seconds: _seconds,
    ...verdict
  } = JSON.parse(await place.verdict()) as Record<string, unknown>;
  return { profile: JSON.parse(stats.stdout.replace(/"place":"[^"]*"/, '"place":""')) as unknown, verdict };
}

const ways: Readonly<Record<string, Way>> = {
  async "one attempt"(args) {
    await expectEnd(runHere(args), 67);
  },
  async "killed attempts"(args, place) {
    let killed = 0;
    for (const most of kills) {
      const { signal } = await runCli(args, { onStart: (child) => void killWhen(child, place, most) });
      killed += signal === "SIGKILL" ? 1 : 0;
    }
    expect(killed).toBeGreaterThan(kills.length / 2);
  },
  async "batches of five rows"(args, _place, nights) {
    await nights.rewrite({ engine: { batch_size: 5 } });
    await expectEnd(runHere(args), 67);
  },
  async "several workers at once"(args) {
    const all = Array.from({ length: workers }, (_, index) => runCli([...args, "--worker", `${index}/${workers}`]));
    const codes = (await Promise.all(all)).map(({ code }) => code);
    expect(codes).toContain(67); // of the worker that found all spans committed; others are done before
    expect(codes.filter((code) => code !== 0 && code !== 67)).toEqual([]);
  },
};

async function killWhen(child: RunningCli, place: Place, most: number): Promise<void> {
  for (let tries = 0; tries < 5000 && (await place.spans().catch(() => 0)) < most; tries += 1) {
    await sleep(5);
  }
  child.kill("SIGKILL");
}

async function expectSame(open: () => Promise<Place>): Promise<void> {
  const found: [string, Found][] = [];
  for (const [name, way] of Object.entries(ways)) {
    await using place = await open();
    found.push([name, await foundOf(place, way)]);
  }
  const [, alone] = found[0] ?? expect.fail("no way");
  expect(alone).toMatchObject({
    profile: {
      status: "held",
      rows: 178,
      outputs: { p: expect.any(Object) },
      features: { alcohol: expect.any(Object) },
      challenger: { rows_compared: 178 },
    },
    verdict: { verdict: { outcome: "hold", baseline: [expect.any(String)] } },
  });
  const { results } = alone.verdict["verdict"] as { results: { check: string }[] };
  expect(results.map(({ check }) => check)).toEqual(expect.arrayContaining(["shape", "unique", "sql", "repeat"]));
  for (const [name, one] of found.slice(1)) {
    expect(one, name).toEqual(alone);
  }
}

test(`a run of one attempt, of ${kills.length} killed ones, in small batches and of ${workers} workers have the same profile and verdict`, {
  timeout: 600_000,
}, async () => {
  await expectSame(async () => {
    const scratch = await scratchFolder();
    const folder = join(scratch.path, `dt=${date}`);
    return {
      output: { parquet: { path: join(scratch.path, "dt=${ds}") } },
      spans: async () =>
        (await readdir(folder, { recursive: true })).filter((name) => /parts\/part-\d/.test(name)).length,
      async verdict() {
        const names = await readdir(folder, { recursive: true });
        return await readFile(join(folder, names.find((name) => name.endsWith("verdict.json")) ?? ""), "utf8");
      },
      [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
    };
  });
});

s3.describe("in S3,", () => {
  test.skipIf(!torture)(
    "a run in S3 of one attempt, of killed ones, in small batches and of four workers have the same profile and verdict",
    { timeout: 1_200_000 },
    async () => {
      useCredentials();
      await expectSame(async () => {
        const bucket = await s3.server().createBucket();
        const scratch = await scratchFolder();
        const endpoint = `http://127.0.0.1:${s3.server().port}`;
        const keys = async (): Promise<string[]> => (await bucket.keys()).filter((key) => key.includes(`dt=${date}/`));
        return {
          output: {
            parquet: {
              path: `s3://${bucket.name}/lake/dt=\${ds}`,
              endpoint,
              spool: { path: join(scratch.path, "spool") },
            },
          },
          spans: async () => (await keys()).filter((key) => /parts\/part-\d/.test(key)).length,
          async verdict() {
            const key = (await keys()).find((name) => name.endsWith("verdict.json")) ?? "";
            return Buffer.from(await bucket.get(key)).toString("utf8");
          },
          [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
        };
      });
    },
  );
});

postgres.describe("in Postgres,", () => {
  test.skipIf(!torture).each(["append", "upsert", "replace"])(
    "a run into Postgres of one attempt, of killed ones, in small batches and of four workers have the same profile and verdict: %s",
    { timeout: 1_200_000 },
    async (mode) => {
      await expectSame(async () => {
        const database = await postgres.server().createDatabase();
        const ofNight = `WHERE run_id IN (SELECT run_id FROM infer_batch.runs WHERE params::text LIKE '%${date}%')`;
        return {
          output: {
            parquet: undefined,
            postgres: {
              url: database.url,
              table: "scores.predictions",
              mode,
              ...(mode === "append" ? {} : { key: ["id"] }),
              timeouts: { lock: 1 },
            },
          },
          spans: async () => (await database.query(`SELECT FROM infer_batch.spans ${ofNight}`)).length,
          async verdict() {
            const [row] = await database.query(`SELECT verdict::text FROM infer_batch.verdicts ${ofNight}`);
            return String(row?.["verdict"]);
          },
          [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
        };
      });
    },
  );
});
