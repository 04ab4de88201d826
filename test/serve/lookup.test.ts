import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { eighthsJob, identity, smallJob } from "../support/faulty.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { lastJson, nightlyJob, type Nights, nightsInTable } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import type { Database } from "../support/pg-database.js";
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

async function scoresOf(nights: Nights): Promise<ReadonlyMap<number, unknown>> {
  return new Map((await outputRows(nights.folder("2026-11-20"))).map(({ id, score }) => [Number(id), score]));
}

/** Values as SQL, as the type of a column of Postgres that has them, and as JSON. */
const spelled: Readonly<Record<string, readonly [sql: string, pg: string, json: string]>> = {
  missing: ["NULL::DOUBLE", "float8", "null"],
  odd: ["'nan'::DOUBLE", "float8", '"NaN"'],
  least: ["'-inf'::FLOAT", "real", '"-Infinity"'],
  tenth: ["0.1::FLOAT", "float8", "0.1"],
  third: ["1/3::DOUBLE", "float8", "0.3333333333333333"],
  many: ["9007199254740993", "bigint", "9007199254740993"],
  most: ["18446744073709551615::UBIGINT", "numeric", "18446744073709551615"],
  price: ["0.5::DECIMAL(10,2)", "numeric(12,4)", "0.50"],
  code: ["'a\"é'", "char(5)", '"a\\"é"'],
  day: ["DATE '2026-11-30'", "date", '"2026-11-30"'],
  at: ["TIMESTAMP '2026-11-30 12:00:00.5'", "timestamp", '"2026-11-30T12:00:00.5"'],
  instant: ["TIMESTAMPTZ '2026-11-30 12:00:00+01'", "timestamptz", '"2026-11-30T11:00:00+00:00"'],
  raw: ["'ab'::BLOB", "bytea", '"\\\\x6162"'],
  list: ["['0.1', 'nan']::FLOAT[]", "jsonb", '[0.1,"NaN"]'],
  pair: ["{'a': 'nan'::DOUBLE}", "jsonb", '{"a":"NaN"}'],
};
const names = Object.keys(spelled);
const spelledRow = Object.entries(spelled)
  .map(([name, [, , json]]) => `"${name}":${json}`)
  .join(",");

/** Publishes a run with the spelled values; in a table if there is a database. */
async function spelledJob({ publish: after }: { publish?: object } = {}, database?: Database): Promise<string> {
  const values = Object.entries(spelled).map(([name, [sql]]) => `${sql} AS "${name}"`);
  const types = Object.entries(spelled).map(([name, [, type]]) => `"${name}" ${type}`);
  await database?.query("CREATE SCHEMA scores");
  await database?.query(`CREATE TABLE scores.predictions (id bigint PRIMARY KEY, ${types.join()}, score real)`);
  const table = { url: database?.url, table: "scores.predictions", mode: "replace", key: ["id"] };
  const { spec } = await smallJob(scratch.path, {
    model: identity,
    select: `SELECT i::BIGINT AS id, i::DOUBLE AS x, ${values.join()} FROM range(2) t(i)`,
    output: { columns: ["id", ...names], ...(database && { parquet: undefined, postgres: table }) },
    serve,
    ...(after && { publish: after }),
  });
  await expectEnd(runHere(["run", spec]), 0);
  return spec;
}

/** Expects the spelled values in the answer to a request for one row. */
async function expectSpelled(server: Served, row: string, source: string, members = spelledRow): Promise<void> {
  const text = await (await server.post("/predict", `{"rows":[${row}]}`)).text();
  expect(text.replaceAll(/(?<=":|,) /g, "")).toContain(members); // JSON of Postgres has blanks
  expect(text).toContain(`"source":"${source}"`);
}

test("values are spelled alike in rows of files and in those that are scored", async () => {
  const server = await startServing(await spelledJob());
  await expectSpelled(server, '{"id":1}', "batch");
  const online = spelledRow.replace(/"raw":"[^"]*"/, '"raw":null'); // a request cannot have bytes
  await expectSpelled(server, `{"id":7,"x":7,${online}}`, "online", online);
});

test("a row of the published files is looked up by its key alone, any other is scored, in the order of the request", async () => {
  const nights = await nightlyJob(scratch.path, await few());
  await publish(nights, "2026-11-20");
  const server = await startServing(nights.spec);
  const rows = ['{"id":7}', await rowOf(300), await rowOf(8), '{"id":99}'];
  const served = await server.predict(rows);
  const batch = await scoresOf(nights);
  expect(served.map(({ id, source }) => [id, source])).toEqual([
    [7, "batch"],
    [300, "online"],
    [8, "batch"],
    [99, "batch"],
  ]);
  for (const { id, score } of served.filter(({ source }) => source === "batch")) {
    expect(Math.fround(Number(score))).toBe(batch.get(Number(id)));
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
    const batch = await scoresOf(nights);
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

  test("values are spelled in Redis as they are answered", async () => {
    const columns = [...names, "score"];
    const server = await startServing(
      await spelledJob({ publish: { redis: { url: redis.url, key: ["id"], columns, ttl: "1d" } } }),
    );
    const value = await redis.ask("GET", `small:${String(await redis.ask("GET", "small:current"))}:1`);
    expect(value).toBe(`{${spelledRow},"score":1}`);
    await expectSpelled(server, '{"id":1}', "batch");
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
  test("a table that somebody alters is waited for no longer than the deadline, or 5 s", async () => {
    const database = await postgres.server().createDatabase();
    const nights = await nightsInTable(scratch.path, database, "replace", await few());
    await publish(nights, "2026-11-20");
    const server = await startServing(nights.spec);
    await database.query("BEGIN; LOCK TABLE scores.predictions");
    const late = await server.post("/predict", '{"rows":[{"id":7}]}', { "x-timeout-ms": "100" });
    expect(late.status).toBe(504);
    const sinceMs = performance.now();
    const refused = await Promise.all(Array.from({ length: 9 }, () => server.post("/predict", '{"rows":[{"id":7}]}')));
    expect(refused.map(({ status, headers }) => [status, headers.get("retry-after")])).toEqual(
      refused.map(() => [503, "1"]),
    );
    expect(performance.now() - sinceMs).toBeLessThan(10_000);
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    await until(async () => (await database.query(waiting)).length === 0, 50); // the server has given them up, too
    await database.query("COMMIT");
    expect(await server.predict(['{"id":7}'])).toMatchObject([{ source: "batch" }]);
  });

  test("values are spelled as elsewhere, whatever settings and types the server has, also on their way to Redis", async () => {
    const database = await postgres.server().createDatabase();
    await using redis = redisMissing === undefined ? await startRedis() : undefined;
    const after = redis && { redis: { url: redis.url, key: ["id"], columns: names, ttl: "1d" } };
    const spec = await spelledJob(after && { publish: after }, database);
    const PGOPTIONS = "-c timezone=Asia/Tokyo -c bytea_output=escape -c extra_float_digits=0";
    await expectSpelled(await startServing(spec, { env: { PGOPTIONS } }), '{"id":1}', "batch");
    const run = String(await redis?.ask("GET", "small:current"));
    expect([undefined, `{${spelledRow}}`]).toContain(await redis?.ask("GET", `small:${run}:1`));
  });

  test("a key that no row of the table can have is refused by its name", async () => {
    const database = await postgres.server().createDatabase();
    await database.query("CREATE TABLE codes (code varchar(3) PRIMARY KEY, score real)");
    const table = { url: database.url, table: "public.codes", mode: "replace", key: ["code"] };
    const { spec } = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 'c' || i AS code, i::DOUBLE AS x FROM range(9) t(i)",
      output: { columns: ["code"], parquet: undefined, postgres: table },
      serve: { ...serve, key: ["code"] },
    });
    await expectEnd(runHere(["run", spec]), 0);
    const server = await startServing(spec);
    for (const code of ["c\u0000", "c123"]) {
      const refused = await server.post("/predict", { rows: [{ code: "c1" }, { code, x: 1 }] });
      expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining("(code)")]);
    }
    expect(await server.predict(['{"code":"c1"}'])).toMatchObject([{ score: 1, source: "batch" }]);
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

  test("the run whose rows a table has is served, also where its date is an earlier one, and not those of another run", async () => {
    const database = await postgres.server().createDatabase();
    const overrides = { ...(await few()), output: { lineage: true } };
    const nights = await nightsInTable(scratch.path, database, "replace", overrides);
    await publish(nights, "2026-11-21");
    const earlier = await expectEnd(nights.night("run", "2026-11-20", "--allow-older", "--json"), 0);
    const server = await startServing(nights.spec);
    expect(await server.predict(['{"id":7}', await rowOf(300)])).toMatchObject([
      { source: "batch", run_id: lastJson(earlier)["run_id"] },
      { source: "online", run_id: lastJson(earlier)["run_id"] },
    ]);
    await expectEnd(runHere(["rollback", nights.spec]), 0);
    const [served] = await server.predict([await rowOf(7)]); // before it looks for another run
    expect(served).toMatchObject({ source: "online", run_id: lastJson(earlier)["run_id"] });
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
