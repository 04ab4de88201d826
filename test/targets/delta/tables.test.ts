import { spawnSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runCommand } from "../../support/cli.js";
import { scratch, writeSpec } from "../../support/job.js";
import { bin, missing, skipped } from "../../support/lake-writers.js";
import { filesOfDelta, rowsOfDelta } from "../../support/lakes.js";
import { useFirstStores } from "../../support/clouds.js";
import { hookedDisk } from "../../support/hooked-disk.js";
import { mirror } from "../../support/s3-target.js";
import { carryOut, deltaSink, planFor } from "../../support/sinks.js";
import { query, readFiles } from "../../support/parquet.js";
import { fixtureNamed } from "../../support/world.js";
import { goldenRows } from "../../support/golden.js";

const stores = useFirstStores();
const fixture = fixtureNamed("diabetes-mlp");
const params = { ds: { type: "date", default: "2026-11-20" } };

async function writeJob(delta: object = {}, more: object = {}, columns: readonly string[] = ["id"]): Promise<string> {
  return await writeSpec(scratch.path, fixture, {
    name: "scores",
    params,
    commit_rows: 100,
    output: { columns, parquet: undefined, delta: { path: "table", ...delta } },
    ...more,
  });
}

const upTo = (end: number): number[] => Array.from({ length: end }, (_, index) => index);

async function run(spec: string, ...args: readonly string[]): ReturnType<typeof runCommand> {
  return await runCommand(["run", spec, ...args]);
}

const table = (): string => join(scratch.path, "table");
const records = (date = "2026-11-20"): Promise<string> =>
  readdir(join(table(), "_infer-batch")).then((names) =>
    join(table(), "_infer-batch", names.find((name) => name.startsWith(date)) ?? ""),
  );

/** What deltalake makes of a table: `expression` of the table `t`, as JSON. */
function ask(expression: string): unknown {
  const code = `import json, os, sys, datetime, pyarrow as pa\nfrom deltalake import DeltaTable\nt = DeltaTable(sys.argv[1])\nprint(json.dumps(${expression}), flush=True)\nos._exit(0)`;
  const { stdout, stderr, status } = spawnSync(join(bin, "python"), ["-c", code, table()], { encoding: "utf8" });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

async function makeTable({
  protocol = { minReaderVersion: 1, minWriterVersion: 2 },
  fields = [],
  partitionColumns = [],
  configuration = {},
}: {
  readonly protocol?: object;
  /** In addition to, or in place of, the columns of the output. */
  readonly fields?: readonly {
    readonly name: string;
    readonly type?: string;
    readonly nullable?: boolean;
    readonly metadata?: object;
  }[];
  readonly partitionColumns?: readonly string[];
  readonly configuration?: object;
}): Promise<void> {
  const usual = [
    { name: "id", type: "long" },
    ...Object.keys(fixture.outputs).map((name) => ({ name, type: "float" })),
  ];
  const all = usual.filter(({ name }) => !fields.some((field) => field.name === name)).concat(fields as typeof usual);
  const schemaString = JSON.stringify({
    type: "struct",
    fields: all.map((field) => Object.assign({ nullable: true, metadata: {} }, field)),
  });
  const metaData = {
    id: "t",
    format: { provider: "parquet", options: {} },
    schemaString,
    partitionColumns,
    configuration,
  };
  await mkdir(join(table(), "_delta_log"), { recursive: true });
  const lines = [{ protocol }, { metaData }].map((action) => JSON.stringify(action));
  await writeFile(join(table(), "_delta_log", "00000000000000000000.json"), lines.join("\n"));
}

test("a part that goes while its run is published is named, and no commit names its file", async () => {
  let isGone: Promise<void> | undefined;
  const takeOne = async (): Promise<void> => {
    const parts = await readdir(table(), { recursive: true });
    await rm(join(table(), parts.find((name) => /_infer-batch\/.*part-00000/.test(name)) ?? ""));
  };
  const fs = hookedDisk(scratch.path, {
    async before(_, call) {
      if (call.startsWith("link table/part-")) {
        isGone ??= takeOne();
        await isGone; // parts are linked side by side
      }
    },
  });
  await using sink = deltaSink(table(), { fs });
  await expect(carryOut(sink, planFor(sink.planTarget))).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
  expect(isGone).toBeDefined();
  expect(await filesOfDelta(table())).toEqual({});
});

describe("a Delta table as the target", () => {
  test.skipIf(missing !== undefined)(
    `has each night as a version that deltalake reads, with statistics that find all rows${skipped}`,
    async () => {
      const spec = await writeJob({ partition: { ds: "${ds}" } });
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
      const golden = await goldenRows(fixture);
      const ids = golden.map(({ id }) => Number(id)).toSorted((one, other) => one - other);
      expect(ask("[t.version(), t.to_pyarrow_table().num_rows, t.metadata().partition_columns]")).toEqual([
        1,
        884,
        ["ds"],
      ]);
      const ofDay = "t.to_pyarrow_table(filters=[('ds', '=', datetime.date(2026, 11, 21))]).sort_by('id').to_pylist()";
      const rows = ask(`[[r['id']] + [r[k] for k in sorted(r) if k not in ('id', 'ds')] for r in ${ofDay}]`);
      const columns = Object.keys(fixture.outputs).toSorted();
      const expected = golden
        .toSorted((one, other) => Number(one["id"]) - Number(other["id"]))
        .map((row) => [Number(row["id"])].concat(columns.map((name) => Number(row[name]))));
      expect(rows).toEqual(expected);
      // Each row is found where the statistics of files say that it can be.
      const known = "[f['min.id'] <= f['max.id'] for f in pa.table(t.get_add_actions(flatten=True)).to_pylist()]";
      expect(ask(known)).toEqual(upTo(10).map(() => true));
      expect(
        ask(`[t.to_pyarrow_table(filters=[('id', '=', i)]).num_rows for i in ${JSON.stringify(ids.slice(0, 40))}]`),
      ).toEqual(ids.slice(0, 40).map(() => 2));
    },
  );

  test("knows of each file how many rows and NULLs it has, and the bounds of whole numbers, dates and short texts", async () => {
    const columns = {
      text: "CASE WHEN id % 3 > 0 THEN 'n' || id END",
      long: "repeat('x', 70 + CAST(id % 30 AS INTEGER))",
      day: "DATE '2026-01-01' + CAST(id AS INTEGER)",
      far: "DATE '9999-12-31' + CAST(id AS INTEGER)",
      at: "TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL (id) SECOND",
    };
    const names = Object.keys(columns);
    await expectEnd(run(await writeJob({}, { input: { columns } }, ["id", ...names])), 0);
    const log = await readFile(join(table(), "_delta_log", "00000000000000000000.json"), "utf8");
    const adds = log
      .trim()
      .split("\n")
      .flatMap((line) => (JSON.parse(line) as { add?: { path: string; stats: string } }).add ?? []);
    expect(adds).toHaveLength(5);
    const none = Object.fromEntries([...names, "id", ...Object.keys(fixture.outputs)].map((name) => [name, 0]));
    for (const { path, stats } of adds) {
      const [row] = await query(
        `SELECT count(*)::INTEGER AS rows, count(*) FILTER (text IS NULL)::INTEGER AS nulls,
           to_json({id: min(id), text: min(text), day: min(day)})::VARCHAR AS low,
           to_json({id: max(id), text: max(text), day: max(day)})::VARCHAR AS high FROM read_parquet('${join(table(), path)}')`,
      );
      expect(JSON.parse(stats)).toEqual({
        numRecords: row?.["rows"],
        minValues: JSON.parse(String(row?.["low"])),
        maxValues: JSON.parse(String(row?.["high"])),
        nullCount: { ...none, text: row?.["nulls"] },
      });
    }
  });

  test("already has a run that was published, whatever its writers do with the files", async () => {
    const spec = await writeJob();
    await expectEnd(run(spec), 0);
    for (const name of (await readdir(table())).filter((each) => each.endsWith(".parquet"))) {
      await rm(join(table(), name)); // they were rewritten, and cleaned up
    }
    const again = await expectEnd(run(spec), 0);
    expect(again.stdout).toContain("already complete");
    await expectEnd(runCommand(["status", spec]), 0);
  });

  test("gets the rows of a run once if an attempt dies between its version and the end", async () => {
    const spec = await writeJob();
    await expectEnd(run(spec), 0);
    await rm(join(await records(), "_SUCCESS"));
    await rm(join(await records(), "_manifest.json"));
    const again = await expectEnd(run(spec), 0);
    expect(again.stdout).toContain("complete, 0 rows scored");
    expect(await rowsOfDelta(table())).toHaveLength(442);
    expect(await readdir(join(table(), "_delta_log"))).toHaveLength(1);
  });

  test("refuses to score a run anew of which it has the rows, unless that was allowed when the run was planned", async () => {
    const spec = await writeJob();
    await expectEnd(run(spec), 0);
    await expectEnd(run(spec, "--new-run"), 64, "it has the rows of run scores-", "--allow-duplicates");
    await cp(join(table(), "_infer-batch"), join(scratch.path, "kept"), { recursive: true });
    await rm(join(table(), "_infer-batch"), { recursive: true });
    await expectEnd(run(spec), 66, "what is known of it is gone", "restore");
    await cp(join(scratch.path, "kept"), join(table(), "_infer-batch"), { recursive: true });
    const held = await writeJob({}, { checks: { sql: { many: "count(*) > 1000" } } });
    await expectEnd(run(held, "--new-run", "--allow-duplicates"), 67);
    await expectEnd(runCommand(["approve", held, "--reason", "fine"]), 0); // its plan has admitted the rows that are there
    expect(await rowsOfDelta(table())).toHaveLength(884);
  });

  test("hides a held run, has it when it is approved, and never if it is discarded", async () => {
    const spec = await writeJob({}, { checks: { sql: { many: "count(*) > 1000" } } });
    await expectEnd(run(spec), 67);
    expect(await readdir(table())).toEqual(["_infer-batch"]);
    const waiting = (await readdir(await records(), { recursive: true })).filter((name) => name.endsWith(".staged"));
    for (const name of waiting) {
      await utimes(join(await records(), name), 0, 0);
    }
    await expectEnd(runCommand(["approve", spec, "--reason", "fine"]), 0);
    expect(await rowsOfDelta(table())).toHaveLength(442);
    // A clean-up that runs at this moment takes old files without a version for forgotten ones.
    for (const name of (await readdir(table())).filter((each) => each.endsWith(".parquet"))) {
      expect(Date.now() - (await stat(join(table(), name))).mtimeMs).toBeLessThan(600_000);
    }
    await expectEnd(run(spec, "--param", "ds=2026-11-21"), 67);
    await expectEnd(runCommand(["discard", spec, "--param", "ds=2026-11-21", "--reason", "bad"]), 0);
    expect(await rowsOfDelta(table())).toHaveLength(442);
    const left = await readdir(await records("2026-11-21"), { recursive: true });
    expect(left.filter((name) => /parquet|staged/.test(name))).toEqual([]);
  });

  test("keeps its rows when the records of a run are pruned, and erases none", async () => {
    const spec = await writeJob();
    await expectEnd(run(spec), 0);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, `${String((await rowsOfDelta(table()))[0]?.["id"])}\n`);
    await expectEnd(runCommand(["erase", spec, "--keys", keys, "--key", "id"]), 64, "DELETE FROM");
    await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
    await expectEnd(runCommand(["prune", spec, "--keep", "1"]), 0);
    expect(await rowsOfDelta(table())).toHaveLength(884);
  });

  test("says where a folder has no table, if none is to be created", async () => {
    await expectEnd(run(await writeJob({ create: false })), 64, "there is no Delta table", "create");
  });

  test.each<[string, Parameters<typeof makeTable>[0], string, object?]>([
    ["column mapping", { configuration: { "delta.columnMapping.mode": "name" } }, "column mapping by name"],
    ["a constraint", { configuration: { "delta.constraints.positive": "id > 0" } }, "delta.constraints.positive"],
    ["tracked rows", { configuration: { "delta.enableRowTracking": "true" } }, "delta.enableRowTracking"],
    [
      "a generated column",
      { fields: [{ name: "day", type: "date", metadata: { "delta.generationExpression": "to_date(at)" } }] },
      "an expression for column day",
    ],
    [
      "an unknown feature",
      { protocol: { minReaderVersion: 3, minWriterVersion: 7, readerFeatures: [], writerFeatures: ["clustering2"] } },
      "clustering2",
    ],
    ["a newer protocol", { protocol: { minReaderVersion: 1, minWriterVersion: 8 } }, "writer version 8"],
    [
      "partitions",
      { partitionColumns: ["region"], fields: [{ name: "region", type: "string" }] },
      "partition to { region",
    ],
    ["a missing column", { fields: [{ name: "must", type: "string", nullable: false }] }, "column must of the table"],
    ["another type", { fields: [{ name: "id", type: "integer" }] }, "id is int64, and int32 in the table"],
    [
      "a default value",
      { fields: [{ name: "must", type: "string", metadata: { CURRENT_DEFAULT: "'x'" } }] },
      "column must of the table",
    ],
    [
      "no partitions, and a run of one",
      { fields: [{ name: "ds", type: "date" }] },
      "it is not partitioned",
      { partition: { ds: "${ds}" } },
    ],
  ])("refuses a table with %s before a row is scored", async (_, made, said, delta = {}) => {
    await makeTable(made);
    await expectEnd(run(await writeJob(delta)), 64, said);
    await expectEnd(runCommand(["plan", await writeJob(delta)]), 64, said);
    expect(await readdir(table())).toEqual(["_delta_log"]);
  });

  describe("with mode replace", () => {
    const replacing = { mode: "replace", partition: { ds: "${ds}" } };
    const countBy = async (): Promise<Record<string, number>> => {
      const counts: Record<string, number> = {};
      for (const [ds, files] of Object.entries(await filesOfDelta(table()))) {
        counts[ds] = (await readFiles(files)).length;
      }
      return counts;
    };
    const write = async (version: number, ...actions: readonly object[]): Promise<void> => {
      const name = `${String(version).padStart(20, "0")}.json`;
      const lines = actions.map((action) => JSON.stringify(action));
      await writeFile(join(table(), "_delta_log", name), lines.join("\n"));
    };
    const fileOf = async (ds: string): Promise<{ path: string; partitionValues: object; size: number }> => {
      const [file = ""] = (await filesOfDelta(table()))[ds] ?? [];
      return { path: basename(file), partitionValues: { ds }, size: (await stat(file)).size };
    };
    const held = { checks: { sql: { many: "count(*) > 1000" } } };

    test("has the rows of the last run of each partition", async () => {
      const spec = await writeJob(replacing);
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
      const file = await fileOf("2026-11-20");
      const deletionVector = {
        storageType: "u",
        pathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^",
        sizeInBytes: 36,
        cardinality: 2,
      };
      await write(2, { remove: file }, { add: { ...file, dataChange: true, deletionVector } });
      await writeJob(replacing, { input: { where: "id >= 100" } });
      await expectEnd(run(spec, "--new-run"), 0);
      expect(await countBy()).toEqual({ "2026-11-20": 342, "2026-11-21": 442 });
      const last = await readFile(join(table(), "_delta_log", "00000000000000000003.json"), "utf8");
      expect(last.split("\n").find((line) => line.includes(file.path))).toContain(
        JSON.stringify({ deletionVector }).slice(1, -1),
      );
      await expectEnd(run(spec), 0);
      expect(await countBy()).toEqual({ "2026-11-20": 342, "2026-11-21": 442 });
    });

    test("is not published over rows that others have changed since, and scored anew is", async () => {
      const spec = await writeJob(replacing);
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
      await writeJob(replacing, held);
      await expectEnd(run(spec, "--new-run"), 67);
      const file = await fileOf("2026-11-20");
      const remove = { ...file, deletionTimestamp: 1, dataChange: true };
      const more = { ...file, path: "more.parquet", modificationTime: 1, dataChange: true };
      for (const actions of [
        [{ add: more }],
        [
          { remove: { ...remove, dataChange: false } },
          { add: { ...more, dataChange: false } },
          { remove: { ...remove, path: more.path } },
        ],
        [{ remove }],
      ]) {
        await write(2, ...actions);
        await expectEnd(runCommand(["approve", spec]), 66, "version 2 has changed its rows", "--new-run");
      }
      expect(await countBy()).toEqual({ "2026-11-20": 342, "2026-11-21": 442 });
      await writeJob(replacing, { checks: {} });
      await expectEnd(run(spec, "--new-run"), 0, "in place of");
      expect(await countBy()).toEqual({ "2026-11-20": 442, "2026-11-21": 442 });
    });

    test("is published over files that others have joined, and beside rows that they add elsewhere", async () => {
      const spec = await writeJob(replacing);
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
      await writeJob(replacing, held);
      await expectEnd(run(spec, "--new-run"), 67);
      const [first, other] = [await fileOf("2026-11-20"), await fileOf("2026-11-21")];
      await cp(join(table(), first.path), join(table(), "joined.parquet"));
      await cp(join(table(), other.path), join(table(), "more.parquet"));
      await write(
        2,
        { remove: { ...first, deletionTimestamp: 1, dataChange: false } },
        { add: { ...first, path: "joined.parquet", modificationTime: 1, dataChange: false } },
        { add: { ...other, path: "more.parquet", modificationTime: 1, dataChange: true } },
      );
      await expectEnd(runCommand(["approve", spec]), 0);
      expect(await countBy()).toEqual({ "2026-11-20": 442, "2026-11-21": 542 });
    });

    test.each([
      ["no partition", {}, "expected the partition that a run replaces"],
      [
        "a partition without the date",
        { partition: { region: "EU" } },
        "expected the date of the run, as { ds: ${ds} }",
      ],
    ])("must have the date in its partition: %s", async (_, partition, said) => {
      await expectEnd(runCommand(["validate", await writeJob({ mode: "replace", ...partition })]), 64, said);
    });

    test("refuses a table from which nothing is removed", async () => {
      await makeTable({
        fields: [{ name: "ds", type: "date" }],
        partitionColumns: ["ds"],
        configuration: { "delta.appendOnly": "true" },
      });
      await expectEnd(run(await writeJob(replacing)), 64, "delta.appendOnly");
    });
  });

  test("refuses NULLs in a column that takes none when a run is published", async () => {
    const fields = [{ name: "note", type: "string", nullable: false }];
    await makeTable({ fields });
    const note = (sql: string): Promise<string> => writeJob({}, { input: { columns: { note: sql } } }, ["id", "note"]);
    await expectEnd(run(await note("CASE WHEN id > 10 THEN 'a' END")), 65, "column note has NULLs");
    expect(await rowsOfDelta(table())).toEqual([]);
    await expectEnd(run(await note("'a'"), "--param", "ds=2026-11-21"), 0);
    expect(await rowsOfDelta(table())).toHaveLength(442);
  });

  test("takes the rows of a table that another engine has made", async () => {
    await makeTable({
      fields: [{ name: "note", type: "string" }],
      configuration: { "delta.appendOnly": "true", "delta.enableRowTracking": "false" },
    });
    await expectEnd(run(await writeJob()), 0);
    expect(await rowsOfDelta(table())).toHaveLength(442);
    const text = await readFile(join(table(), "_delta_log", "00000000000000000001.json"), "utf8");
    expect(text).toContain('"txn":{"appId":"infer-batch:scores-');
  });

  for (const { name, describe: describeStore, server } of stores) {
    describeStore(`in ${name}`, () => {
      test("has the rows of each night once, also where a version is there already", async () => {
        const bucket = await server().createBucket();
        const { AWS_ENDPOINT_URL_S3: _, ...env } = bucket.env();
        const delta = { path: `${bucket.uri}/lake/table`, endpoint: bucket.endpointAt(), spool: { path: "spool" } };
        const spec = await writeJob({ ...delta, ...(name === "S3" ? { conditional_writers: true } : {}) });
        await expectEnd(runCommand(["run", spec], { env }), 0);
        const nights = ["2026-11-21", "2026-11-22", "2026-11-23"];
        const ends = nights.map((ds) => runCommand(["run", spec, "--param", `ds=${ds}`], { env, ownProcess: true }));
        await Promise.all(ends.map((end) => expectEnd(end, 0)));
        await expectEnd(runCommand(["run", spec, "--param", "ds=2026-11-23"], { env }), 0);
        await mirror(bucket, "lake/table", table());
        expect(await rowsOfDelta(table())).toHaveLength(4 * 442);
        expect(await readdir(join(table(), "_delta_log"))).toHaveLength(4);
      });
    });
  }

  test("must say of S3 how others write to the table", async () => {
    const spec = await writeJob({ path: "s3://lake/table" });
    await expectEnd(runCommand(["validate", spec]), 64, "conditional_writers");
  });
});
