import { access, cp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, projectFolder, runCommand } from "../../support/cli.js";
import { goldenRows } from "../../support/golden.js";
import { httpProxy } from "../../support/http-proxy.js";
import { icebergMissing, type TableShape, useDiskCatalog } from "../../support/iceberg.js";
import { scratch, writeSpec } from "../../support/job.js";
import { writeLakeJob } from "../../support/lakes.js";
import { outputRows } from "../../support/output.js";
import { query } from "../../support/parquet.js";
import { fixtureNamed } from "../../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const params = { ds: { type: "date", default: "2026-11-20" } };
const upTo = (end: number): number[] => Array.from({ length: end }, (_, index) => index);
const usual: TableShape["columns"] = [
  ["id", "long", false],
  ["score", "float", false],
];
const parted: TableShape = { columns: [...usual, ["ds", "date", false]], partition: [["ds", "identity"]] };
const held = { checks: { sql: { many: "count(*) > 1000" } } };

describe.skipIf(icebergMissing !== undefined)(
  `an Iceberg table as the target${icebergMissing === undefined ? "" : ` (skipped: ${icebergMissing})`}`,
  { timeout: 120_000 },
  () => {
    const catalog = useDiskCatalog();
    let tables = 0;
    const newName = (): string => `db.t${(tables += 1)}`;
    const pyiceberg = () => catalog().pyiceberg;

    async function writeJob(
      table: string,
      iceberg: object = {},
      more: object = {},
      { columns = ["id"], url = catalog().url }: { columns?: readonly string[]; url?: string } = {},
    ): Promise<string> {
      return await writeSpec(scratch.path, fixture, {
        name: "scores",
        params,
        commit_rows: 100,
        output: {
          columns,
          parquet: undefined,
          iceberg: { catalog: { url, warehouse: "tests", token: "${CATALOG_TOKEN}" }, table, ...iceberg },
        },
        ...more,
      });
    }

    const command = (...args: readonly string[]): ReturnType<typeof runCommand> =>
      runCommand(args, { env: catalog().env });
    const run = (spec: string, ...args: readonly string[]): ReturnType<typeof runCommand> =>
      command("run", spec, ...args);
    const rowCount = async (table: string): Promise<number> => (await pyiceberg().read(table)).rows.length;
    const countByDate = async (table: string): Promise<Record<string, number>> => {
      const counts: Record<string, number> = {};
      for (const { ds } of (await pyiceberg().read(table)).rows) {
        counts[String(ds)] = (counts[String(ds)] ?? 0) + 1;
      }
      return counts;
    };
    const recordsOf = async (table: string, date = "2026-11-20"): Promise<string> => {
      const folder = join(catalog().folderOf(table), "_infer-batch");
      return join(folder, (await readdir(folder)).find((name) => name.startsWith(date)) ?? "");
    };

    test("is created, and has each night as a snapshot that pyiceberg and this program read, with statistics that find all rows", async () => {
      const table = newName();
      const spec = await writeJob(table, { partition: { ds: "${ds}" } });
      expect((await expectEnd(command("plan", spec), 0)).stdout).toContain("the right to create the table");
      await expectEnd(command("status", spec), 0);
      await expect(access(catalog().folderOf(table))).rejects.toThrow("ENOENT");
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
      const golden = (await goldenRows(fixture)).toSorted((one, other) => Number(one["id"]) - Number(other["id"]));
      const ids = golden.map(({ id }) => Number(id));
      const { rows, points, operations, records, files } = await pyiceberg().read(table, ids.slice(0, 40));
      const ofDay = rows
        .filter(({ ds }) => ds === "2026-11-21")
        .toSorted((one, other) => Number(one["id"]) - Number(other["id"]));
      expect(ofDay.map(({ id, score }) => [id, score])).toEqual(golden.map(({ id, score }) => [Number(id), score]));
      expect(points).toEqual(ids.slice(0, 40).map(() => 2));
      expect({ operations, records, files: files.length }).toEqual({
        operations: ["append", "append"],
        records: "884",
        files: 10,
      });
      // Readers that take no names find columns by their ids.
      const [file = ""] = files.map(([uri]) => uri.replace("file://", ""));
      const stored = await query(`SELECT name, field_id FROM parquet_schema('${file}') WHERE field_id IS NOT NULL`);
      expect(Object.fromEntries(stored.map(({ name, field_id: id }) => [name, Number(id)]))).toEqual({
        id: 1,
        score: 2,
      });

      const input = { catalog: { url: catalog().url, warehouse: "tests", token: "${CATALOG_TOKEN}" } };
      const reading = await writeLakeJob(scratch.path, {
        table,
        columns: ["id", "ds"],
        input,
        more: { model: { path: "model.onnx", inputs: { x: ["id"] }, outputs: { again: "score" } } },
      });
      await expectEnd(run(reading), 0);
      const read = await outputRows(join(scratch.path, "out"));
      expect(read).toHaveLength(884);
      expect(new Set(read.map(({ ds }) => String(ds))).size).toBe(2);
    });

    test("already has a run that was published, and gets its rows once if an attempt dies between its commit and the end", async () => {
      const table = newName();
      const spec = await writeJob(table);
      await expectEnd(run(spec), 0);
      expect((await expectEnd(run(spec), 0)).stdout).toContain("already complete");
      await rm(join(await recordsOf(table), "_SUCCESS"));
      await rm(join(await recordsOf(table), "_manifest.json"));
      expect((await expectEnd(run(spec), 0)).stdout).toContain("complete, 0 rows scored");
      expect(await rowCount(table)).toBe(442);
      expect((await pyiceberg().read(table)).operations).toEqual(["append"]);
    });

    test("refuses to score a run anew of which it has the rows, also when its snapshot has expired", async () => {
      const table = newName();
      const spec = await writeJob(table);
      await expectEnd(run(spec), 0);
      await expectEnd(run(spec, "--new-run"), 64, "it has the rows of run scores-", "--allow-duplicates");
      await pyiceberg().append(table, [{ id: 1000, score: 1 }]);
      await pyiceberg().forget(table);
      await cp(join(catalog().folderOf(table), "_infer-batch"), join(scratch.path, "records"), { recursive: true });
      await rm(join(catalog().folderOf(table), "_infer-batch"), { recursive: true });
      await expectEnd(run(spec), 66, "what is known of it is gone", "restore");
      await cp(join(scratch.path, "records"), join(catalog().folderOf(table), "_infer-batch"), { recursive: true });
      await expectEnd(run(spec, "--new-run", "--allow-duplicates"), 0);
      expect(await rowCount(table)).toBe(885);
    });

    test("knows its runs by their snapshots, too, where a property was taken off", async () => {
      const table = newName();
      const spec = await writeJob(table);
      await expectEnd(run(spec), 0);
      await pyiceberg().untell(table);
      await rm(join(catalog().folderOf(table), "_infer-batch"), { recursive: true });
      await expectEnd(run(spec), 66, "what is known of it is gone", "restore");
      expect(await rowCount(table)).toBe(442);
    });

    test("has the rows of the first model alone where a challenger scores them, too", async () => {
      const table = newName();
      const path = join(projectFolder, "fixtures/models", fixture.model);
      const spec = await writeJob(table, {}, { challenger: { path } });
      await expectEnd(run(spec), 0);
      expect(await rowCount(table)).toBe(442);
      const below = await readdir(join(await recordsOf(table), "_challenger"));
      expect(below.filter((name) => name.startsWith("part-"))).toHaveLength(5);
    });

    test.each<[string, TableShape, string]>([
      ["a transformed partition", { columns: parted.columns, partition: [["ds", "day"]] }, "a partition by day"],
      [
        "a partition",
        { columns: [...usual, ["ds", "string", false]], partition: [["ds", "identity"]] },
        "partition to { ds",
      ],
      ["a column that must have values", { columns: [...usual, ["must", "string", true]] }, "column must of the table"],
      [
        "another type",
        {
          columns: [
            ["id", "int", false],
            ["score", "float", false],
          ],
        },
        "id is int64, and int32 in the table",
      ],
      ["no such column", { columns: [["id", "long", false]] }, "no column score"],
      ["encryption", { columns: usual, properties: { "encryption.key-id": "k" } }, "encryption.key-id"],
    ])("refuses a table with %s before a row is scored", async (_, shape, said) => {
      const table = newName();
      await pyiceberg().make(table, shape);
      const spec = await writeJob(table);
      await expectEnd(run(spec), 64, said);
      await expectEnd(command("plan", spec), 64, said);
      expect(await readdir(catalog().folderOf(table))).toEqual(["metadata"]);
    });

    test("says where there is no table, if none is to be created, and what to do in place of an upsert", async () => {
      await expectEnd(run(await writeJob(newName(), { create: false })), 64, "has no table", "output.iceberg.table");
      await expectEnd(command("validate", await writeJob(newName(), { mode: "upsert" })), 64, "MERGE INTO");
      await expectEnd(command("validate", await writeJob("scores")), 64, "such as db.scores");
    });

    test("refuses NULLs in a column that takes none when a run is published", async () => {
      const table = newName();
      await pyiceberg().make(table, { columns: [...usual, ["note", "string", true]] });
      const note = (sql: string): Promise<string> =>
        writeJob(table, {}, { input: { columns: { note: sql } } }, { columns: ["id", "note"] });
      await expectEnd(run(await note("CASE WHEN id > 10 THEN 'a' END")), 65, "column note has NULLs");
      expect(await rowCount(table)).toBe(0);
      await expectEnd(run(await note("'a'"), "--param", "ds=2026-11-21"), 0);
      expect(await rowCount(table)).toBe(442);
    });

    test("is not written to where a column was made anew, or the table was, after the run was planned", async () => {
      const table = newName();
      await pyiceberg().make(table, { columns: usual });
      const spec = await writeJob(table, {}, held);
      await expectEnd(run(spec), 67);
      await pyiceberg().evolve(table, ["score"]);
      await expectEnd(command("approve", spec, "--reason", "fine"), 66, "column score is another one", "--new-run");
      await writeJob(table, {}, { checks: {} });
      await expectEnd(run(spec, "--new-run"), 0);
      expect((await pyiceberg().read(table)).rows.filter(({ score }) => score === null)).toEqual([]);
      await pyiceberg().drop(table);
      expect((await expectEnd(command("status", spec), 0)).stdout).toMatch(/no run|not planned|never/);
    });

    test.each<[string, TableShape["columns"][number], string, string]>([
      [
        "lists, whose NULLs are not known, for a column that takes none",
        ["more", "list", true],
        "['a']",
        "more takes no NULLs",
      ],
      ["binary values for those of a fixed length", ["more", "fixed", false], "'abcd'::BLOB", "of another type"],
    ])("refuses %s", async (_, column, sql, said) => {
      const table = newName();
      await pyiceberg().make(table, { columns: [...usual, column] });
      const input = { columns: { more: `CASE WHEN id > 10 THEN ${sql} END` } };
      await expectEnd(run(await writeJob(table, {}, { input }, { columns: ["id", "more"] })), 64, said);
    });

    test.each(["this program", "another one"])(
      "has no run of a table that was dropped, where %s makes a new one in its folder",
      async (maker) => {
        const table = newName();
        await pyiceberg().make(table, { columns: usual });
        const spec = await writeJob(table);
        await expectEnd(run(spec), 0);
        await pyiceberg().drop(table);
        await (maker === "this program" ? undefined : pyiceberg().make(table, { columns: usual }));
        await expectEnd(run(spec), 66, "output.iceberg.uuid", "--new-run");
        await expectEnd(run(spec, "--new-run"), 0);
        expect(await rowCount(table)).toBe(442);
        expect((await expectEnd(run(spec), 0)).stdout).toContain("already complete");
      },
    );

    test("has no run of a chain whose rows went when it was dropped, until all rows come again", async () => {
      const [from, table] = [newName(), newName()];
      const given = { catalog: { url: catalog().url, warehouse: "tests", token: "${CATALOG_TOKEN}" } };
      await pyiceberg().make(from, { columns: usual.toSpliced(1, 1, ["x", "double", false]) });
      const more = { output: { columns: ["id"], iceberg: { table, ...given } } };
      const input = { since: "last_run", ...given };
      const spec = await writeLakeJob(scratch.path, { table: from, columns: ["x"], input, more });
      await pyiceberg().append(from, [{ id: 1, x: 1 }]);
      await expectEnd(run(spec), 0);
      await pyiceberg().drop(table);
      await pyiceberg().make(table, { columns: usual.toSpliced(1, 1, ["score", "double", false]) });
      await pyiceberg().append(from, [{ id: 2, x: 2 }]);
      await expectEnd(run(spec), 66, "dropped", "--new-run");
      await expectEnd(run(spec, "--new-run", "--allow-duplicates"), 0);
      expect((await pyiceberg().read(table)).rows).toHaveLength(2);
    });

    describe("with mode replace", () => {
      const replacing = { mode: "replace", partition: { ds: "${ds}" } };
      const heldAnew = async (): Promise<{ table: string; spec: string }> => {
        const table = newName();
        const spec = await writeJob(table, replacing);
        await expectEnd(run(spec), 0);
        await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
        await writeJob(table, replacing, held);
        await expectEnd(run(spec, "--new-run"), 67);
        return { table, spec };
      };

      test.each([
        ["1", "ds"],
        ["2", "1. Tür-day"],
        ["3", "ds"],
      ])("has the rows of the last run of each partition, in version %s by %s", async (version, field) => {
        const table = newName();
        const partition = [["ds", "identity", field]] as const;
        await pyiceberg().make(table, { ...parted, partition, properties: { "format-version": version } });
        const own = [
          { id: 1, score: 1, ds: "2026-11-20" },
          { id: 2, score: 1, ds: "2026-11-22" },
        ];
        await (version === "3" ? undefined : pyiceberg().append(table, own));
        const more = version === "3" ? {} : { "2026-11-22": 1 };
        const spec = await writeJob(table, replacing);
        await expectEnd(run(spec), 0);
        await expectEnd(run(spec, "--param", "ds=2026-11-21"), 0);
        expect(await countByDate(table)).toEqual({ "2026-11-20": 442, "2026-11-21": 442, ...more });
        await writeJob(table, replacing, { input: { where: "id >= 100" } });
        await expectEnd(run(spec, "--new-run"), 0);
        expect(await countByDate(table)).toEqual({ "2026-11-20": 342, "2026-11-21": 442, ...more });
        await expectEnd(run(spec), 0);
        const { records, points } = await pyiceberg().read(table, [100, 400]);
        expect(records).toBe(version === "3" ? "784" : "785");
        expect(points).toEqual([2, 2]);
      });

      test("is not published over rows that others have changed since, and scored anew is", async () => {
        const { table, spec } = await heldAnew();
        await pyiceberg().append(table, [{ id: 1000, score: 1, ds: "2026-11-20" }]);
        await expectEnd(command("approve", spec, "--reason", "fine"), 66, "has changed its rows", "--new-run");
        expect(await countByDate(table)).toEqual({ "2026-11-20": 443, "2026-11-21": 442 });
        await writeJob(table, replacing, { checks: {} });
        await expectEnd(run(spec, "--new-run"), 0, "in place of");
        expect(await countByDate(table)).toEqual({ "2026-11-20": 442, "2026-11-21": 442 });
      });

      test("is published beside rows that others add and delete elsewhere, and not where the history is gone", async () => {
        const { table, spec } = await heldAnew();
        await pyiceberg().append(table, [{ id: 1000, score: 1, ds: "2026-11-21" }]);
        await pyiceberg().delete(table, "ds = '2026-11-21' AND id < 10");
        await expectEnd(command("approve", spec, "--reason", "fine"), 0);
        expect(await countByDate(table)).toEqual({ "2026-11-20": 442, "2026-11-21": 433 });
        await expectEnd(run(spec, "--new-run"), 67);
        await pyiceberg().append(table, [{ id: 1000, score: 1, ds: "2026-11-21" }]);
        await pyiceberg().append(table, [{ id: 1001, score: 1, ds: "2026-11-21" }]);
        await pyiceberg().forget(table);
        await expectEnd(command("approve", spec, "--reason", "fine"), 66, "does not lead back");
      });
    });

    test("says what the catalog refuses, and has no rows then", async () => {
      await using proxy = await httpProxy(Number(new URL(catalog().url).port));
      const table = newName();
      await pyiceberg().make(table, { columns: usual });
      const spec = await writeJob(table, {}, {}, { url: `http://127.0.0.1:${proxy.port}` });
      for (const [status, code] of [
        [400, 64],
        [403, 64],
      ] as const) {
        proxy.twist = (request) => (request.startsWith("POST ") ? { kind: "answer", status, body: "{}" } : undefined);
        await expectEnd(run(spec), code, `HTTP ${status}`);
      }
      expect(await rowCount(table)).toBe(0);
      proxy.twist = undefined;
      await expectEnd(run(spec), 0);
      expect(await rowCount(table)).toBe(442);
    });

    test("has the rows of runs that are published at once, and those of another writer", async () => {
      const table = newName();
      await pyiceberg().make(table, { columns: usual });
      const spec = await writeJob(table);
      const nights = upTo(4).map((night) => `2026-11-2${night}`);
      const runs = nights.map((ds) =>
        runCommand(["run", spec, "--param", `ds=${ds}`], { env: catalog().env, ownProcess: true }),
      );
      let own = 0;
      for (let step = 0; step < 8; step += 1) {
        // It gives up where a run was first.
        await pyiceberg()
          .append(table, [{ id: 1000 + step, score: 1 }])
          .then(
            () => (own += 1),
            () => undefined,
          );
      }
      await Promise.all(runs.map((each) => expectEnd(each, 0)));
      expect(await rowCount(table)).toBe(4 * 442 + own);
      expect(Object.keys((await pyiceberg().read(table)).runs)).toHaveLength(4);
    });
  },
);
