import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { lastJson, nightlyJob, type Nights, nightsInTable } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import { missing as redisMissing, type RedisServer, skipped as redisSkipped, startRedis } from "../support/redis.js";
import { jsonRows, type Served, startServing } from "../support/serve.js";
import { tcpProxy } from "../support/tcp-proxy.js";
import { until } from "../support/waiting.js";

const postgres = usePostgres();
const serve = { port: 0, key: ["id"], poll: "100s" };
const data = join(projectFolder, "fixtures/data/diabetes/*.parquet");

async function rowOf(id: number): Promise<string> {
  const [row = ""] = await jsonRows(`SELECT * FROM '${data}' WHERE id = ${id}`);
  return row;
}

/** Has a job score rows 0 to 99 of the fixture only. */
async function few(): Promise<SpecOverrides> {
  await writeRows(join(scratch.path, "few.parquet"), `SELECT * FROM '${data}' WHERE id < 100`);
  return { serve, checks: undefined, input: { path: "few.parquet" } };
}

async function publish(nights: Nights, date: string): Promise<void> {
  await expectEnd(nights.night("run", date), 0);
}

test("a row of the published files is looked up by its key alone, any other is scored, in the order of the request", async () => {
  const nights = await nightlyJob(scratch.path, await few());
  await publish(nights, "2026-11-20");
  const server = await startServing(nights.spec);
  const rows = ['{"id":7}', await rowOf(300), await rowOf(8), '{"id":99}'];
  const served = await server.predict(rows);
  const batch = new Map((await outputRows(nights.folder("2026-11-20"))).map((row) => [row["id"], row]));
  expect(served.map(({ id, source }) => [id, source])).toEqual([
    [7, "batch"],
    [300, "online"],
    [8, "batch"],
    [99, "batch"],
  ]);
  for (const { id, score } of served.filter(({ source }) => source === "batch")) {
    expect(Math.fround(Number(score))).toBe(batch.get(BigInt(id as number))?.["score"] ?? batch.get(id)?.["score"]);
  }
  const missing = await server.post("/predict", `{"rows":[{"id":7},{"id":300}]}`);
  expect([missing.status, await missing.text()]).toEqual([400, expect.stringMatching(/row 1 has no column/)]);
  expect((await server.post("/predict", { rows: [{ id: "seven" }] })).status).toBe(400);
  const text = await (await server.get("/metrics")).text();
  expect(text).toMatch(/predictions_total\{batch_job="diabetes-mlp",source="batch"\} 3\n/);
});

test("rows that do not fit in memory are refused with the memory that they need", async () => {
  const spec = await eighthsJob(600_000, { engine: { memory: "64MiB", threads: 1 }, serve });
  await expectEnd(runHere(["run", spec]), 0);
  const { code, stderr } = await runHere(["serve", spec]);
  expect([code, stderr]).toEqual([
    75,
    expect.stringMatching(/holding the rows of run .*MiB[^]*set engine.memory: \d+MiB/),
  ]);
});

describe(`rows in Redis${redisSkipped}`, () => {
  if (redisMissing !== undefined) {
    test.skip("no server");
    return;
  }
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(async () => {
    await redis[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    await redis.ask("FLUSHALL");
  });

  const published = async (url: string, more: object = {}): Promise<Nights> => {
    const redisSpec = { url, key: ["id"], columns: ["score"], ttl: "1d", ...more };
    const nights = await nightlyJob(scratch.path, { ...(await few()), publish: { redis: redisSpec } });
    await publish(nights, "2026-11-20");
    return nights;
  };
  const rowKey = async (id: number): Promise<string> =>
    `diabetes-mlp:${String(await redis.ask("GET", "diabetes-mlp:current"))}:${id}`;
  const sources = async (server: Served, ids: readonly number[]): Promise<unknown[]> =>
    (await server.predict(await Promise.all(ids.map(rowOf)))).map(({ id, source }) => [id, source]);

  test("rows of the run that is served are found, those that expired are scored, and where it is not known, too", async () => {
    const nights = await published(redis.url);
    const server = await startServing(nights.spec);
    const served = await server.predict(['{"id":7}', await rowOf(300), '{"id":99}']);
    const batch = new Map(
      (await outputRows(nights.folder("2026-11-20"))).map((row) => [Number(row["id"]), row["score"]]),
    );
    expect(served.map(({ id, source }) => [id, source])).toEqual([
      [7, "batch"],
      [300, "online"],
      [99, "batch"],
    ]);
    expect([7, 99].map((id) => batch.get(id))).toEqual(
      [served[0], served[2]].map((row) => Math.fround(Number(row?.["score"]))),
    );

    // What Redis has is what is answered: its files are not held.
    await redis.ask("SET", await rowKey(7), '{"score":-5}');
    expect(await server.predict(['{"id":7}'])).toMatchObject([{ id: 7, score: -5, source: "batch" }]);
    await redis.ask("DEL", await rowKey(8));
    expect(await sources(server, [7, 8])).toEqual([
      [7, "batch"],
      [8, "online"],
    ]);
    const shown = String(await redis.ask("GET", "diabetes-mlp:current"));
    await redis.ask("SET", "diabetes-mlp:current", "diabetes-mlp-0123456789ab.01234567");
    expect(await sources(server, [7])).toEqual([[7, "batch"]]); // of the run that is served, which is another one
    await redis.ask("DEL", `diabetes-mlp:{diabetes-mlp:current}:${shown}`);
    expect(await sources(server, [7])).toEqual([[7, "online"]]);
    expect(await server.post("/predict", '{"rows":[{"id":7}]}')).toMatchObject({ status: 503 });
  });

  test("while Redis is away, or silent, rows are scored with one warning, and found when it is back", async () => {
    await using proxy = await tcpProxy(redis.port);
    const nights = await published(`redis://127.0.0.1:${proxy.port}`);
    const server = await startServing(nights.spec);
    expect(await sources(server, [7])).toEqual([[7, "batch"]]);
    proxy.arm("stall", () => true);
    expect((await server.post("/predict", '{"rows":[{"id":7}]}', { "x-timeout-ms": "100" })).status).toBe(504);
    expect(await sources(server, [7])).toEqual([[7, "online"]]);
    await until(async () => String(await sources(server, [7])) === "7,batch", 50);

    await redis.kill();
    for (let request = 0; request < 20; request += 1) {
      expect(await sources(server, [7])).toEqual([[7, "online"]]);
    }
    expect(server.stderr().match(/looking rows up in Redis at/g)).toHaveLength(1);
    await redis.start();
    await expectEnd(nights.night("run", "2026-11-20"), 0); // writes them again
    await until(async () => String(await sources(server, [7])) === "7,batch", 50);
  });

  test("another key, or other columns, than those that are answered leaves the rows where they are", async () => {
    const nights = await published(redis.url, { columns: ["id"] });
    const server = await startServing(nights.spec);
    await redis.ask("FLUSHALL");
    expect(await sources(server, [7])).toEqual([[7, "batch"]]);
  });
});

postgres.describe("rows in Postgres", () => {
  test("a deadline holds while the table is asked", async () => {
    const database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace", await few());
    await publish(nights, "2026-11-20");
    const server = await startServing(nights.spec);
    await database.query("BEGIN; LOCK TABLE scores.predictions");
    const late = await server.post("/predict", '{"rows":[{"id":7}]}', { "x-timeout-ms": "100" });
    expect(late.status).toBe(504);
    await database.query("COMMIT");
    expect(await server.predict(['{"id":7}'])).toMatchObject([{ source: "batch" }]);
  });

  test("a table with rows of several runs is refused without lineage", async () => {
    const database = await postgres.server().createDatabase();
    for (const [mode, output, code] of [
      ["append", {}, 64],
      ["upsert", {}, 64],
      ["upsert", { lineage: true }, 0],
    ] as const) {
      const nights = await nightsInTable(scratch.path, database, mode, { serve, checks: undefined, output });
      await expectEnd(
        runHere(["validate", nights.spec, "--param", "ds=2026-11-20"]),
        code,
        code === 0 ? "" : /serve.key: .*lineage/,
      );
    }
  });

  test.each([
    [
      "of a run that is not published",
      "upsert",
      "UPDATE scores.predictions SET run_id = 'diabetes-mlp-0123456789ab', score = -1 WHERE id = 8",
    ],
    [
      "whose key comes twice in a run",
      "append",
      "INSERT INTO scores.predictions SELECT * FROM scores.predictions WHERE id = 8",
    ],
  ])("a row %s is scored, others are looked up", async (_which, mode, change) => {
    const database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, mode, { ...(await few()), output: { lineage: true } });
    await publish(nights, "2026-11-20");
    const server = await startServing(nights.spec);
    await database.query(change);
    const [seven, eight] = await server.predict(['{"id":7}', await rowOf(8)]);
    expect([seven, eight]).toMatchObject([
      { id: 7, source: "batch" },
      { id: 8, source: "online" },
    ]);
    expect(Number(eight?.["score"])).toBeGreaterThan(0);
  });

  test("a key that no row of the table can have leaves the others of its request to be looked up", async () => {
    const database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace", await few());
    await publish(nights, "2026-11-20");
    const server = await startServing(nights.spec);
    await database.query("ALTER TABLE scores.predictions ALTER COLUMN id TYPE smallint");
    const other = (await rowOf(8)).replace('"id":8', '"id":70000');
    expect(await server.predict(['{"id":7}', other, '{"id":9}'])).toMatchObject([
      { id: 7, source: "batch" },
      { id: 70_000, source: "online" },
      { id: 9, source: "batch" },
    ]);
  });

  test("the run whose rows a table has is served, also where its date is an earlier one", async () => {
    const database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace", await few());
    await publish(nights, "2026-11-21");
    const earlier = await expectEnd(nights.night("run", "2026-11-20", "--allow-older", "--json"), 0);
    const server = await startServing(nights.spec);
    expect(await server.predict(['{"id":7}', await rowOf(300)])).toMatchObject([
      { source: "batch", run_id: lastJson(earlier)["run_id"] },
      { source: "online", run_id: lastJson(earlier)["run_id"] },
    ]);
  });

  test("rows of a table that takes the place of the served one are not answered before its run is served", async () => {
    const database = await postgres.server().createDatabase();
    const spec = { ...(await few()), serve: { ...serve, poll: "2s" } };
    const nights = await nightsInTable(scratch.path, database, "replace", spec);
    await publish(nights, "2026-11-20");
    const server = await startServing(nights.spec);
    const [before] = await server.predict(['{"id":7}']);
    await publish(nights, "2026-11-21");
    const row = await rowOf(7);
    const [swapped] = await server.predict([row]);
    expect(before).toMatchObject({ source: "batch" });
    const isNew = swapped?.["run_id"] !== before?.["run_id"];
    expect(swapped?.["source"]).toBe(isNew ? "batch" : "online");
    await until(async () => (await server.predict([row]))[0]?.["run_id"] !== before?.["run_id"], 100);
    expect(await server.predict(['{"id":7}'])).toMatchObject([{ source: "batch" }]);

    await expectEnd(runHere(["rollback", nights.spec]), 0);
    await until(async () => (await server.predict([row]))[0]?.["run_id"] === before?.["run_id"], 100);
    await until(async () => (await server.predict([row]))[0]?.["source"] === "batch", 100);
  });
});
