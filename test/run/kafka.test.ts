import { readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runCli, runCommand } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { type Broker, missing, type SentRecord, skipped, startBroker, tokenFor, user } from "../support/kafka.js";
import { writeModel } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { rejectLines } from "../support/rejects.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

const postgres = usePostgres();
let broker: Broker;
beforeAll(async () => {
  if (missing === undefined) {
    broker = await startBroker();
  }
}, 120_000);
afterAll(async () => {
  await broker?.[Symbol.asyncDispose]();
});

const columns = { id: "int64", x: "float64", name: "text", day: "date", ok: "bool" };

async function writeJob(topic: string, input: object = {}, more: object = {}, kafka: object = {}): Promise<string> {
  await writeModel(join(scratch.path, "model.onnx"), {
    inputs: [{ name: "x", dtype: "float64", shape: ["N", 1] }],
    outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
    nodes: [{ op: "Identity", from: ["x"], to: "score" }],
  });
  const spec = {
    version: 1,
    name: "stream",
    input: { kafka: { brokers: [broker.address], topic, columns, ...kafka }, ...input },
    model: { path: "model.onnx", inputs: { x: ["x"] } },
    output: {
      columns: [...Object.keys(columns), "_key", "_timestamp", "_offset", "_partition"],
      parquet: { path: "out" },
    },
    commit_rows: 40,
    on_bad_row: "reject",
    max_rejects: "100%",
    retry: { max_seconds: 2 },
    ...more,
  };
  const path = join(scratch.path, "job.yaml");
  await writeFile(path, JSON.stringify(spec));
  return path;
}

interface Ran {
  readonly code: number | null;
  readonly stderr: string;
  readonly report: Readonly<Record<string, unknown>>;
}

async function run(spec: string, ...options: readonly string[]): Promise<Ran> {
  const { code, stdout, stderr } = await runCommand(["run", spec, "--json", "--no-progress", ...options]);
  return { code, stderr, report: reportIn(stdout) };
}

function reportIn(stdout: string): Readonly<Record<string, unknown>> {
  return JSON.parse(stdout.trim().split("\n").at(-1) || "{}") as Readonly<Record<string, unknown>>;
}

function values(start: number, length: number): SentRecord[] {
  return Array.from({ length }, (_, index) => {
    const id = start + index;
    const value = { id, x: id / 4, name: `n${id} é`, day: "2026-11-30", ok: id % 2 === 0, other: [1, { a: null }] };
    return [`k${id}`, JSON.stringify(value)];
  });
}

/** Rows of all runs as [partition, offset, key, id, score], in order. */
async function scored(folder = "out"): Promise<unknown[][]> {
  const rows = await outputRows(join(scratch.path, folder));
  return inOrder(
    rows.map((row) => [
      Number(row["_partition"]),
      Number(row["_offset"]),
      row["_key"],
      Number(row["id"]),
      Number(row["score"]),
    ]),
  );
}

/** The same of what another client reads: records that are committed and have a good value. */
async function committed(topic: string): Promise<unknown[][]> {
  const records = await broker.read(topic);
  return inOrder(
    records.flatMap(([partition, offset, key, value]) => {
      const { id, x } = JSON.parse(value ?? "null") as { id: number; x: number };
      return [[partition, offset, key, id, x]];
    }),
  );
}

function inOrder(rows: unknown[][]): unknown[][] {
  return rows.toSorted((one, other) => Number(one[0]) - Number(other[0]) || Number(one[1]) - Number(other[1]));
}

describe.skipIf(missing !== undefined)(`a topic of Kafka${skipped}`, () => {
  test("is read up to its last committed record, without those of aborted transactions", async () => {
    await broker.act("create", "committed", 3, {});
    await broker.act("send", "committed", 0, values(0, 50));
    await broker.act("transaction", "committed", 0, values(50, 60), "abort");
    await broker.act("transaction", "committed", 0, values(110, 30), "commit");
    await broker.act("transaction", "committed", 1, values(140, 30), "commit");
    await broker.act("transaction", "committed", 1, values(170, 70), "abort");
    const spec = await writeJob("committed");
    const ran = await run(spec);
    expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 110, rows_filtered: 134 } });
    expect(await scored()).toEqual(await committed("committed"));
    const [first] = await outputRows(join(scratch.path, "out"));
    expect(first).toMatchObject({ name: "n0 é", ok: true });
    expect(String(first?.["day"])).toContain("2026-11-30");
    const records = await broker.read("committed");
    const [, , , , time] = records.find(([partition, offset]) => partition === 0 && offset === 0) ?? [];
    expect(new Date(String(first?.["_timestamp"])).getTime()).toBe(time);
    expect(await run(spec)).toMatchObject({ code: 0, report: { status: "already_complete" } });
  });

  test("has bad rows where a value is no JSON or of another type, and none where a record deletes its key", async () => {
    await broker.act("create", "bad", 1, {});
    await broker.act("send", "bad", 0, [
      ...values(0, 1),
      ["k", "no json"],
      ["k", '{"id": 1, "x": 2,}'],
      ["k", '{"id": "1", "x": 2}'],
      ["k", '{"id": 1, "x": "2"}'],
      ["k", '{"id": 1.5, "x": 2}'],
      ["k", '{"id": 1, "x": 2, "day": "2026-02-30"}'],
      ["k", '{"id": 1, "x": 2, "ok": 1}'],
      ["k", '{"id": 1, "x": null}'],
      ["k", '{"x": 2}'],
      ["k", null],
      [null, '{"id": 9223372036854775807, "x": 1e2, "name": "\\u00e9\\"", "x": 0.1}'],
    ]);
    const failed = await run(
      await writeJob("bad", {}, { on_bad_row: "fail", output: { columns: [], parquet: { path: "no" } } }),
    );
    expect(failed).toMatchObject({ code: 65, report: { code: "BAD_ROW" } });
    expect(failed.stderr).toMatch(/kafka:bad\/0\/0-12: row 1: it is no JSON object: no json$/m);
    const ran = await run(await writeJob("bad"));
    expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 3, rows_rejected: 8, rows_filtered: 1 } });
    const rows = await outputRows(join(scratch.path, "out"));
    expect(
      rows.map(({ _key, id, name, score }) => [_key, typeof id === "bigint" ? String(id) : id, name, score]),
    ).toEqual([
      ["k0", "0", "n0 é", 0],
      ["k", null, null, 2],
      [null, "9223372036854775807", 'é"', 0.1],
    ]);
    const rejectsIn = async (folder: string): Promise<string[]> =>
      (await rejectLines(join(scratch.path, folder))).map(
        ({ row, reason, value }) => `${String(row)} ${String(reason)}: ${String(value)}`,
      );
    const bad = [
      "1 unreadable: it is no JSON object: no json",
      expect.stringMatching(/^2 unreadable: .*no JSON from byte 17/),
      '3 unreadable: id is no int64: "1"',
      '4 unreadable: x is no float64: "2"',
      "5 unreadable: id is no int64: 1.5",
      expect.stringMatching(/^6 unreadable: day is no date/),
      expect.stringMatching(/^7 unreadable: ok is no bool: 1/),
    ];
    expect(await rejectsIn("out")).toEqual([...bad, "8 null: null"]);

    // The same rows are bad whatever is computed of them, and where others are left out.
    const computed = {
      where: "x < 1",
      columns: { twice: "CAST(CASE WHEN x = 0.1 THEN 'no' ELSE '1' END AS INTEGER)" },
    };
    const more = { output: { columns: ["_offset", "twice"], parquet: { path: "computed" } } };
    const filtered = await run(await writeJob("bad", computed, more));
    expect(filtered, filtered.stderr).toMatchObject({ report: { rows_scored: 1, rows_rejected: 8, rows_filtered: 3 } });
    expect(await rejectsIn("computed")).toEqual([...bad, expect.stringMatching(/^11 expression_failed: x = 0.1/)]);
  });

  test("has values of Avro and JSON whose schemas are in a registry", async () => {
    await using registry = await startRegistry();
    await broker.act("create", "registered", 1, {});
    const field = (name: string, type: unknown): object => ({ name, type, default: null });
    const schema = {
      type: "record",
      name: "Row",
      fields: [
        { name: "id", type: "long" },
        field("x", ["null", "double"]),
        field("name", ["null", "string"]),
        field("day", ["null", { type: "int", logicalType: "date" }]),
        field("ok", ["null", "boolean"]),
        field("more", ["null", { type: "array", items: "long" }]),
      ],
    };
    const older = { ...schema, fields: schema.fields.slice(0, 2) };
    const first = { id: "9007199254740993", x: 0.1, name: 'é"', day: 20_787, ok: true, more: [1] };
    await broker.act("avro", registry.url, "registered", schema, [first, { id: "-2", x: 2 }]);
    await broker.act("avro", registry.url, "registered", older, [{ id: "3", x: 3 }]);
    const framed = (id: number, value: string): string =>
      `00${id.toString(16).padStart(8, "0")}${Buffer.from(value).toString("hex")}`;
    registry.schemas.set(50, { schema: "{}", schemaType: "JSON" });
    registry.schemas.set(51, { schema: "syntax", schemaType: "PROTOBUF" });
    const raw = [framed(50, '{"id": 4, "x": 4}'), framed(51, "x"), framed(52, "x"), framed(1, "x"), "7b7d"];
    await broker.act("raw", "registered", raw);
    const place = (password: string): object => ({ registry: { url: registry.url, username: "alice", password } });
    const ran = await run(await writeJob("registered", {}, {}, place("registry-password")));
    expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 4, rows_rejected: 4 } });
    const rows = await outputRows(join(scratch.path, "out"));
    const shown = rows.map(({ id, x, name, day, ok }) => [String(id), x, name, JSON.stringify(day), ok]);
    expect(shown).toEqual([
      ["9007199254740993", 0.1, 'é"', '{"days":20787}', true],
      ["-2", 2, null, "null", null],
      ["3", 3, null, "null", null],
      ["4", 4, null, "null", null],
    ]);
    const rejects = await rejectLines(join(scratch.path, "out"));
    expect(rejects.map(({ value }) => String(value))).toEqual([
      "its schema 51 is PROTOBUF, which is not read",
      "its schema 52 is not in the registry",
      expect.stringMatching(/^it is no record of its schema/),
      "it does not begin with the id of a schema",
    ]);
    const refused = await run(
      await writeJob("registered", {}, { output: { columns: [], parquet: { path: "no" } } }, place("a-wrong-password")),
    );
    expect(refused).toMatchObject({ code: 64, report: { code: "PERMISSION" } });
    expect(refused.stderr).not.toContain("a-wrong-password");
  });

  test("has headers as columns", async () => {
    await broker.act("create", "headed", 1, {});
    const value = values(0, 1)[0]?.[1] ?? null;
    const hex = (text: string): string => Buffer.from(text).toString("hex");
    await broker.act("send", "headed", 0, [
      ["a", value, ["trace", hex("t1 é")], ["other", hex("x")]],
      ["b", value, ["trace", hex("t2")], ["trace", hex("t3")], ["é", "ff00"]],
      ["c", value, ["trace", hex("t4")], ["trace", null], ["é", ""]],
      ["d", value],
    ] satisfies SentRecord[]);
    const headers = { trace_id: "trace", raw: "é" };
    const output = { columns: ["_key", "trace_id", "raw"], parquet: { path: "out" } };
    const ran = await run(await writeJob("headed", {}, { output }, { headers }));
    expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 4 } });
    const rows = await outputRows(join(scratch.path, "out"));
    expect(rows.map(({ _key, trace_id, raw }) => [_key, trace_id, raw])).toEqual([
      ["a", "t1 é", null],
      ["b", "t3", "\\xff00"],
      ["c", null, ""],
      ["d", null, null],
    ]);
    const changed = await run(await writeJob("headed", {}, { output }, { headers: { ...headers, raw: "other" } }));
    expect(changed).toMatchObject({ code: 66, report: { code: "PLAN_CHANGED" } });
    const twice = await run(await writeJob("headed", {}, { output }, { headers: { X: "other" } }));
    expect(twice).toMatchObject({ code: 64, report: { code: "SPEC_INVALID" } });
  });

  test.each(["gzip", "snappy", "lz4", "zstd"])("may be packed with %s, by a client or the broker", async (codec) => {
    const topic = `packed-${codec}`;
    await broker.act("create", topic, 2, {});
    await broker.act("create", `${topic}-by-broker`, 2, { "compression.type": codec });
    for (const name of [topic, `${topic}-by-broker`]) {
      await broker.act("send", name, 0, values(0, 1500), name === topic ? codec : "none");
      const ran = await run(
        await writeJob(
          name,
          {},
          { output: { columns: ["id", "_key", "_offset", "_partition"], parquet: { path: name } }, commit_rows: 2000 },
        ),
      );
      expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 1500 } });
      expect(await scored(name)).toEqual(await committed(name));
    }
  });

  test("is read by those who may, over connections that are encrypted or not", async () => {
    await broker.act("create", "guarded", 1, {});
    await broker.act("send", "guarded", 0, values(0, 10));
    const logins = ["plain", "scram-sha-256", "scram-sha-512"].map((mechanism) => ({
      brokers: [broker.guarded],
      sasl: { mechanism, username: user.name, password: user.password },
    }));
    const bearer = (token: string): object => ({
      brokers: [broker.guarded],
      sasl: { mechanism: "oauthbearer", token },
    });
    const places = [...logins, bearer(tokenFor(600)), { brokers: [broker.encrypted], tls: { ca: broker.ca } }];
    for (const [index, place] of places.entries()) {
      const output = { columns: ["id", "_key", "_offset", "_partition"], parquet: { path: `out${index}` } };
      const ran = await run(await writeJob("guarded", {}, { output }, place));
      expect(ran, ran.stderr).toMatchObject({ code: 0, report: { rows_scored: 10 } });
    }
    for (const mechanism of ["plain", "scram-sha-256"]) {
      const sasl = { mechanism, username: user.name, password: "another-password" };
      const refused = await run(await writeJob("guarded", {}, {}, { brokers: [broker.guarded], sasl }));
      expect(refused).toMatchObject({ code: 64, report: { code: "PERMISSION" } });
      expect(refused.stderr).not.toContain("another-password");
    }
    const expired = tokenFor(-30);
    const late = await run(await writeJob("guarded", {}, {}, bearer(expired)));
    expect(late, late.stderr).toMatchObject({ code: 64, report: { code: "PERMISSION" } });
    expect(late.stderr).not.toContain(expired);
    const unencrypted = await run(await writeJob("guarded", {}, {}, { brokers: [broker.encrypted], tls: true }));
    expect(unencrypted).toMatchObject({ code: 64, report: { code: "PERMISSION" } });
  });

  test("must be there, at brokers that answer", async () => {
    expect(await run(await writeJob("nowhere"))).toMatchObject({ code: 64, report: { code: "FILE_MISSING" } });
    const silent = await run(await writeJob("nowhere", {}, {}, { brokers: ["127.0.0.1:1"] }));
    expect(silent).toMatchObject({ code: 75, report: { code: "NETWORK" } });
    await broker.act("create", "empty", 2, {});
    expect(await run(await writeJob("empty"))).toMatchObject({ code: 75, report: { code: "INPUT_NOT_READY" } });
  });

  test("has no rows where its records were compacted", async () => {
    const settings = { "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01" };
    await broker.act("create", "compacted", 1, settings);
    for (let round = 0; round < 4; round += 1) {
      const records = values(round * 100, 100).map(([, value], index): SentRecord => [`k${index}`, value]);
      await broker.act("send", "compacted", 0, records);
    }
    let round = 400;
    await until(async () => {
      await broker.act("send", "compacted", 0, values(round, 1)); // the newest segment is not compacted
      round += 1;
      return (await broker.read("compacted")).length < 300;
    }, 200);
    const ran = await run(await writeJob("compacted"));
    expect(ran, ran.stderr).toMatchObject({ code: 0 });
    const rows = await scored();
    expect(Number(ran.report["rows_filtered"])).toBeGreaterThan(100);
    // It may be compacted further between both reads.
    expect(rows).toEqual(expect.arrayContaining(await committed("compacted")));
  }, 60_000);

  test("is shared out among workers", async () => {
    await broker.act("create", "shared", 3, {});
    for (const partition of [0, 1, 2]) {
      await broker.act("send", "shared", partition, values(partition * 200, 200));
    }
    const spec = await writeJob("shared");
    const args = ["run", spec, "--json", "--no-progress", "--worker"];
    const workers = await Promise.all([runCli([...args, "0/2"]), runCli([...args, "1/2"])]);
    expect(workers.map(({ code, stderr }) => [code, stderr.includes("error")])).toEqual([
      [0, false],
      [0, false],
    ]);
    expect(await scored()).toEqual(await committed("shared"));
  });
});

describe.skipIf(missing !== undefined)(`runs with input.since of a topic${skipped}`, () => {
  const since = { since: "last_run" };

  test("each read what came after the last one, of new partitions too", async () => {
    await broker.act("create", "growing", 2, {});
    const spec = await writeJob("growing", since);
    expect(await run(spec)).toMatchObject({ code: 0, report: { status: "nothing_new" } });
    await broker.act("send", "growing", 0, values(0, 100));
    expect(await run(spec)).toMatchObject({ code: 0, report: { rows_scored: 100 } });
    expect(await run(spec)).toMatchObject({ code: 0, report: { status: "nothing_new" } });

    await broker.act("partitions", "growing", 3);
    await broker.act("transaction", "growing", 2, values(100, 50), "commit");
    await broker.act("transaction", "growing", 0, values(150, 50), "abort");
    await broker.act("send", "growing", 1, values(200, 20));
    // Records of a transaction that is still open are read by the run after its end.
    await broker.act("transaction", "growing", 1, values(220, 20), "later");
    const twice = await Promise.all([runCli(["run", spec, "--no-progress"]), runCli(["run", spec, "--no-progress"])]);
    expect(
      twice.map(({ code }) => code),
      twice[0]?.stderr,
    ).toEqual([0, 0]);
    expect(await allScored()).toHaveLength(170);

    await broker.act("end", "later");
    await until(async () => (await broker.read("growing")).length === 190); // its marker may be written a little later
    expect(await run(spec)).toMatchObject({ code: 0, report: { rows_scored: 20 } });
    expect(await run(spec)).toMatchObject({ code: 0, report: { status: "nothing_new" } });
    expect(await allScored()).toEqual(await committed("growing"));
  });

  postgres.describe("into a table by upsert", () => {
    test("keep the last record of a key in a partition, and of partitions in a run that of the highest", async () => {
      await using database = await postgres.server().createDatabase();
      await database.query(
        "CREATE TABLE latest (name text PRIMARY KEY, x float8, _partition int, _offset bigint, score float8)",
      );
      await broker.act("create", "keyed", 2, {});
      const record = (x: number): SentRecord => ["k", JSON.stringify({ x, name: "k" })];
      const table = { url: database.url, table: "latest", mode: "upsert", key: ["name"], on_duplicate: "last" };
      const output = { columns: ["name", "x", "_partition", "_offset"], postgres: table };
      const spec = await writeJob("keyed", since, { output, commit_rows: 2 });
      const latest = async (): Promise<unknown> =>
        (await database.query("SELECT x, _partition, _offset::int FROM latest")).map((row) => Object.values(row));
      await broker.act("send", "keyed", 1, [record(1), record(2)]);
      await broker.act("send", "keyed", 0, [record(3), record(4), record(5)]);
      expect(await run(spec)).toMatchObject({ code: 0 });
      expect(await latest()).toEqual([[2, 1, 1]]);
      await broker.act("send", "keyed", 0, [record(6)]);
      expect(await run(spec)).toMatchObject({ code: 0 });
      expect(await latest()).toEqual([[6, 0, 3]]);
    });
  });

  test("tell a group and the metrics how far they have read", async () => {
    await broker.act("create", "watched", 2, {});
    await broker.act("send", "watched", 0, values(0, 30));
    await broker.act("send", "watched", 1, values(30, 5));
    const metrics = join(scratch.path, "metrics.prom");
    const spec = await writeJob("watched", since, { report: { metrics } }, { group: "scorers" });
    const gauges = async (name: string): Promise<string | undefined> =>
      new RegExp(`^infer_batch_${name}\\{.*\\} (.*)$`, "m").exec(await readFile(metrics, "utf8"))?.[1];
    expect(await run(spec)).toMatchObject({ code: 0 });
    expect(await broker.act("group", "scorers", "watched")).toEqual({ 0: 30, 1: 5 });
    expect(await gauges("input_lag_rows")).toBe("0");
    const times = (await broker.read("watched")).map(([, , , , timeMs]) => timeMs);
    expect(Number(await gauges("input_newest_timestamp_seconds"))).toBe(Math.max(...times) / 1000);
    await broker.act("send", "watched", 1, values(35, 7));
    expect(await run(spec)).toMatchObject({ code: 0, report: { rows_scored: 7 } });
    expect(await broker.act("group", "scorers", "watched")).toEqual({ 0: 30, 1: 12 });
    await broker.act("forget", "scorers"); // as if the run was killed before it told them
    expect(await run(spec)).toMatchObject({ code: 0, report: { status: "nothing_new" } });
    expect(await gauges("input_lag_rows")).toBe("0");
    expect(await broker.act("group", "scorers", "watched")).toEqual({ 0: 30, 1: 12 });

    const checks = { on_fail: "hold", outputs: { score: { range: [-2, -1] } } };
    await writeJob("watched", since, { checks }, { group: "scorers" });
    await broker.act("send", "watched", 0, values(42, 3));
    expect([(await run(spec)).code, (await runCommand(["approve", spec])).code]).toEqual([67, 0]);
    expect(await broker.act("group", "scorers", "watched")).toEqual({ 0: 30, 1: 12 });
    expect(await run(spec)).toMatchObject({ report: { status: "nothing_new" } });
    expect(await broker.act("group", "scorers", "watched")).toEqual({ 0: 33, 1: 12 });
  });

  test.skipIf(!torture)(
    "go on when a leader has gone and another one comes, also in the middle of a run",
    async () => {
      await broker.act("create", "led", 2, {});
      const spec = await writeJob("led", since, { commit_rows: 200, retry: { max_seconds: 90 } });
      for (let batch = 0; batch < 10; batch += 1) {
        await broker.act("send", "led", batch % 2, values(batch * 1000, 1000));
      }
      let restarted: Promise<void> | undefined;
      const { code, stderr } = await runCli(["run", spec, "--no-progress"], {
        onStart() {
          restarted = until(async () => (await partsOfLast()) > 0, 1).then(() => broker.restart());
        },
      });
      await restarted;
      expect(code, stderr).toBe(0);
      await broker.act("send", "led", 0, values(10_000, 100));
      const next = await run(spec);
      expect(next, next.stderr).toMatchObject({ code: 0, report: { rows_scored: 100 } });
      expect(await allScored()).toEqual(await committed("led"));
    },
    120_000,
  );

  test("end with 66 where records were removed, or the topic made anew, before they were read", async () => {
    await broker.act("create", "shrinking", 1, {});
    await broker.act("send", "shrinking", 0, values(0, 100));
    const spec = await writeJob("shrinking", since);
    expect(await run(spec)).toMatchObject({ code: 0 });
    await broker.act("send", "shrinking", 0, values(100, 50));
    await broker.act("expire", "shrinking", 0, 130);
    const expired = await run(spec);
    expect(expired, expired.stderr).toMatchObject({ code: 66, report: { code: "INPUT_REWRITTEN" } });
    expect(expired.stderr).toMatch(/30 offsets, from 100 on[^]*new_files[^]*--new-run/);
    const onwards = await writeJob("shrinking", { ...since, on_rewrite: "new_files" });
    expect(await run(onwards)).toMatchObject({ code: 0, report: { rows_scored: 20 } });

    await broker.act("drop", "shrinking");
    await remade("shrinking");
    await broker.act("send", "shrinking", 0, values(500, 10));
    expect(await run(await writeJob("shrinking", since))).toMatchObject({
      code: 66,
      report: { code: "INPUT_REWRITTEN" },
    });
    expect(await run(onwards)).toMatchObject({ code: 66 }); // the same file: it says fail again
    const again = await writeJob("shrinking", { ...since, on_rewrite: "new_files" });
    expect(await run(again)).toMatchObject({ code: 0, report: { rows_scored: 10 } });
    expect((await allScored()).map(([, , , id]) => Number(id)).toSorted((one, other) => one - other)).toEqual([
      ...range(0, 100),
      ...range(130, 150),
      ...range(500, 510),
    ]);
  });

  test("are continued with the offsets that they were planned with, or refused", async () => {
    await broker.act("create", "resumed", 1, {});
    await broker.act("send", "resumed", 0, values(0, 400));
    const spec = await writeJob("resumed", since, { commit_rows: 50 });
    const stopped = await stopAfterPart(spec);
    expect(stopped).toBeGreaterThan(0);
    await broker.act("send", "resumed", 0, values(400, 100));
    const other = await writeJob("resumed", since, { commit_rows: 50 }, { columns: { ...columns, ok: "text" } });
    expect(await run(other)).toMatchObject({ code: 66, report: { code: "PLAN_CHANGED" } });
    const registry = { url: "http://127.0.0.1:1" };
    const packed = await writeJob("resumed", since, { commit_rows: 50 }, { columns, registry });
    expect(await run(packed)).toMatchObject({ code: 66, report: { code: "PLAN_CHANGED" } });
    await writeJob("resumed", since, { commit_rows: 50 });
    const resumed = await run(spec);
    expect(resumed, resumed.stderr).toMatchObject({ code: 0, report: { rows_planned: 400 } });
    expect(resumed.report["spans_resumed"]).toBeGreaterThan(0);
    expect(await run(spec)).toMatchObject({ code: 0, report: { rows_scored: 100 } });
    expect(await allScored()).toEqual(await committed("resumed"));

    await broker.act("send", "resumed", 0, values(500, 400));
    await stopAfterPart(spec);
    await broker.act("expire", "resumed", 0, 890);
    const expired = await run(spec);
    expect(expired, expired.stderr).toMatchObject({ code: 66, report: { code: "INPUT_CHANGED" } });
    await broker.act("drop", "resumed");
    await remade("resumed");
    await broker.act("send", "resumed", 0, values(0, 900));
    const remadeTopic = await run(spec);
    expect(remadeTopic, remadeTopic.stderr).toMatchObject({ code: 66, report: { code: "INPUT_CHANGED" } });
    expect(remadeTopic.stderr).toContain("made anew");
  });
});

/** Runs of a chain, how many of them are killed, and the most records that are sent before each. */
const { ticks, kills, most } = torture ? { ticks: 30, kills: 20, most: 5000 } : { ticks: 5, kills: 3, most: 300 };

test.skipIf(missing !== undefined)(
  `a chain of runs reads each committed record of a topic once, some of them killed, two at once, or of two workers${skipped}`,
  async () => {
    const random = randomOf(11);
    const upTo = (limit: number): number => Math.floor(random() * limit);
    await broker.act("create", "lived", 1, {});
    const spec = await writeJob("lived", { since: "last_run" }, { commit_rows: torture ? 1000 : 100 });
    let [partitions, sent, killed] = [1, 0, 0];
    const tick = async (isKilled: boolean, ...options: readonly string[]): Promise<void> => {
      const ran = await runCli(["run", spec, "--no-progress", ...options], {
        onStart(child) {
          if (isKilled) {
            setTimeout(() => child.kill("SIGKILL"), 300 + random() * 700);
          }
        },
      });
      expect([0, 137, null], ran.stderr).toContain(ran.code);
    };
    for (let round = 0; round < ticks; round += 1) {
      if (random() < 0.2) {
        partitions += 1;
        await broker.act("partitions", "lived", partitions);
      }
      for (let batch = 0; batch < 3; batch += 1) {
        const records = values(sent, upTo(most));
        sent += records.length;
        const end = ["commit", "abort", "send"][upTo(3)] ?? "";
        const args = ["lived", upTo(partitions), records];
        await (end === "send" ? broker.act("send", ...args) : broker.act("transaction", ...args, end));
      }
      const isKilled = kills - killed >= ticks - round || random() < kills / ticks;
      killed += isKilled ? 1 : 0;
      const ways = [
        [[]],
        [[], []],
        [
          ["--worker", "0/2"],
          ["--worker", "1/2"],
        ],
      ];
      const way = ways[upTo(3)] ?? [];
      await Promise.all(way.map((options, index) => tick(isKilled && index === 0, ...options)));
    }
    await tick(false); // what the last one has left open
    await tick(false);
    expect(killed).toBeGreaterThanOrEqual(Math.min(kills, 2));
    expect(await allScored()).toEqual(await committed("lived"));
  },
  torture ? 1_200_000 : 120_000,
);

interface Registry extends AsyncDisposable {
  readonly url: string;
  /** By their ids, as they are told. */
  readonly schemas: Map<number, object>;
}

/** A registry of schemas as far as Confluent's serializer and this program ask it; it takes one user. */
async function startRegistry(): Promise<Registry> {
  const schemas = new Map<number, object>();
  const server = createServer((request, response) => {
    const login = `Basic ${Buffer.from("alice:registry-password").toString("base64")}`;
    const said = (status: number, body: object): void => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    const { url = "", method, headers } = request;
    if (headers.authorization !== login) {
      said(401, { error_code: 401, message: "Unauthorized" });
    } else if (method === "POST") {
      const added = json(request).then((schema) => schemas.set(schemas.size + 1, schema as object));
      void added.then(() => {
        said(200, { id: schemas.size, ...schemas.get(schemas.size) });
        return undefined;
      });
    } else {
      const schema = schemas.get(Number(/\/schemas\/ids\/(\d+)/.exec(url)?.[1]));
      said(schema === undefined ? 404 : 200, schema ?? { error_code: 40_403, message: "Schema not found" });
    }
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    schemas,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

/** A topic may be made again some time after it is dropped. */
async function remade(topic: string): Promise<void> {
  await until(
    async () =>
      await broker.act("create", topic, 1, {}).then(
        () => true,
        () => false,
      ),
    100,
  );
  await until(async () => (await broker.read(topic)).length === 0, 100); // the broker may still show the topic of before
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}

async function allScored(): Promise<unknown[][]> {
  const names = await readdir(join(scratch.path, "out"));
  const rows = await Promise.all(
    names.filter((name) => name.startsWith("run=")).map((name) => scored(join("out", name))),
  );
  return inOrder(rows.flat());
}

/** The parts of the last run of a chain; 0: it is complete. */
async function partsOfLast(): Promise<number> {
  const folders = (await namesIn(join(scratch.path, "out"))).filter((name) => name.startsWith("run="));
  const last = folders.toSorted().at(-1) ?? "";
  const names = await namesIn(join(scratch.path, "out", last));
  return names.includes("_SUCCESS") ? 0 : names.filter((name) => name.endsWith(".parquet")).length;
}

/** Kills a run when it has committed a span. Returns how many it has committed. */
async function stopAfterPart(spec: string): Promise<number> {
  await runCli(["run", spec, "--no-progress"], {
    onStart(child) {
      void until(async () => (await partsOfLast()) > 0, 1).then(() => child.kill("SIGKILL"));
    },
  });
  return await partsOfLast();
}

async function namesIn(folder: string): Promise<readonly string[]> {
  return await readdir(folder).catch(() => []);
}
