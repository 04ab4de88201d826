import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd } from "../support/cli.js";
import { identity, lookup, smallJob, type Spoilt, spoiltJob } from "../support/faulty.js";
import { differences } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { faultsOfFinished, outputRows, partNames } from "../support/output.js";
import { longBytes, replaceBytes } from "../support/parquet-patches.js";
import { query, writeRows } from "../support/parquet.js";
import { expectAllThere, reject, rejectLines, spoil } from "../support/rejects.js";
import { runSpec, scoreHere } from "../support/score.js";
import { firstOf } from "../support/torture.js";

/** Digits' columns are, in turn, INTEGER, UTINYINT, SMALLINT, BIGINT, DOUBLE, FLOAT. Shards end at 500, 799, 1400. */
async function digitsColumns(): Promise<readonly string[]> {
  const found = await query("DESCRIBE SELECT * EXCLUDE (id) FROM 'fixtures/data/digits/part-00000.parquet'");
  return found.map(({ column_name: name }) => String(name));
}

async function digitsSpoilt(): Promise<Spoilt[]> {
  const [int32 = "", uint8 = "", , int64 = "", float64 = "", float32 = ""] = await digitsColumns();
  return [
    spoil(0, uint8, "NULL", "null", null),
    spoil(12, float64, "'nan'", "not_finite", "nan"),
    spoil(13, float32, "'-inf'", "not_finite", "-inf"),
    spoil(499, float64, "1e300", "does_not_fit", "1e+300"),
    spoil(500, int32, "16777217", "does_not_fit", "16777217"),
    spoil(501, int64, "-16777217", "does_not_fit", "-16777217"),
    spoil(1100, float32, "'inf'", "not_finite", "inf"),
    spoil(1796, int64, "9223372036854775807", "does_not_fit", "9223372036854775807"),
  ];
}

describe("rows that cannot be scored are set aside, and all others are scored right", () => {
  const shapes = [
    { batch: 7, commit: 13 },
    { batch: 4096, commit: "auto" },
    { batch: 1, commit: 300 },
    { batch: 7, commit: "auto" },
  ];

  test.each(firstOf(shapes))(
    "rows that cannot be scored are set aside, and all others are scored right in batches of $batch and spans of $commit",
    async ({ batch, commit }) => {
      const spoilt = await digitsSpoilt();
      const settings = { ...reject, engine: { batch_size: batch }, commit_rows: commit };
      const job = await spoiltJob(scratch.path, "digits-lightgbm", spoilt, settings);

      expect(await scoreHere(job.spec)).toMatchObject({ rowsPlanned: 1797, rowsScored: 1789, rowsRejected: 8 });

      await expectAllThere(job, spoilt);
    },
  );

  test.each(firstOf([{ commit: 20 }, { commit: "auto" }, { commit: 100 }]))(
    "rows that cannot be scored are set aside, and all others are scored right in a model's fixed batches, padded, and spans of $commit",
    async ({ commit }) => {
      const spoilt = [
        spoil(19, "bmi", "NULL", "null", null),
        spoil(20, "age", "1e300", "does_not_fit", "1e+300"),
        spoil(250, "bmi", "'nan'", "not_finite", "nan"),
        spoil(441, "sex", "'inf'", "not_finite", "inf"),
      ];
      const job = await spoiltJob(scratch.path, "diabetes-mlp-batch32", spoilt, { ...reject, commit_rows: commit });

      await scoreHere(job.spec);

      await expectAllThere(job, spoilt);
    },
  );

  test("lists that are NULL, of the wrong length, or with a NULL or NaN in them are set aside", async () => {
    const zeros = `0${", 0".repeat(62)}`;
    const shown = `0.0${", 0.0".repeat(62)}`;
    const spoilt = [
      spoil(3, "embedding", "NULL", "null", null),
      spoil(64, "embedding", "[1, 2]", "does_not_fit", "[1.0, 2.0]"),
      spoil(65, "embedding", "[]", "does_not_fit", "[]"),
      spoil(700, "embedding", `[${zeros}, 1, 2]`, "does_not_fit", `[${shown}, 1.0, 2.0]`),
      spoil(800, "embedding", `[${zeros}, NULL]`, "does_not_fit", `[${shown}, NULL]`),
      spoil(801, "embedding", `[${zeros}, 'nan'::FLOAT]`, "not_finite", `[${shown}, nan]`),
      spoil(1796, "weight", "NULL", "null", null),
    ];
    const settings = { ...reject, commit_rows: 100, engine: { batch_size: 50 } };
    const job = await spoiltJob(scratch.path, "embedding-mlp", spoilt, settings);

    await scoreHere(job.spec);

    await expectAllThere(job, spoilt);
  });

  test("padded lists that are NULL, too long, or with a NULL in them are set aside", async () => {
    const spoilt = [
      spoil(0, "input_ids", "NULL", "null", null),
      spoil(99, "input_ids", "[2] || range(48)", "too_long", "49 elements"),
      spoil(101, "token_type_ids", "[1, NULL]", "does_not_fit", "[1, NULL]"),
      spoil(329, "token_type_ids", "NULL", "null", null),
    ];
    const settings = { ...reject, commit_rows: 60, engine: { batch_size: 7 } };
    const job = await spoiltJob(scratch.path, "sentences-mean", spoilt, settings);

    await scoreHere(job.spec);

    await expectAllThere(job, spoilt);
  });

  test("texts that are NULL or have a zero byte are set aside", async () => {
    const spoilt = [
      spoil(0, "sex", "NULL", "null", null),
      spoil(101, "island", "NULL", "null", null),
      spoil(102, "sex", "'male' || chr(0)", "does_not_fit", "male\u0000"),
      spoil(332, "year", "NULL", "null", null),
    ];
    const settings = { ...reject, commit_rows: 50, engine: { batch_size: 7 } };
    const job = await spoiltJob(scratch.path, "penguins-pipeline", spoilt, settings);

    await scoreHere(job.spec);

    await expectAllThere(job, spoilt);
  });

  test("rows that cannot be scored are set aside, and all others are scored right once each, however many of a row's values are bad", async () => {
    const spoilt = [spoil(7, "age", "NULL", "null", null)];
    const more = [...spoilt, spoil(7, "bmi", "'nan'", "", null), spoil(7, "sex", "NULL", "", null)];
    const job = await spoiltJob(scratch.path, "diabetes-mlp", more, { ...reject, max_rejects: 1 });

    expect(await scoreHere(job.spec)).toMatchObject({ rowsRejected: 1 });

    await expectAllThere(job, spoilt);
  });

  test("rows that cannot be scored are set aside, and all others are scored right when it is every row: the parts have none, and the run is finished", async () => {
    const settings = { ...reject, commit_rows: 4 };
    const select = "SELECT row AS id, NULL::DOUBLE AS x FROM range(10) AS t(row)";
    const { spec, out } = await smallJob(scratch.path, { model: identity, select, ...settings });

    expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsScored: 0, rowsRejected: 10 });

    expect(await partNames(out)).toHaveLength(3);
    const described = await query(`DESCRIBE SELECT * FROM '${out}/*.parquet'`);
    expect(described.map(({ column_name: name, column_type: type }) => [name, type])).toEqual([
      ["id", "BIGINT"],
      ["score", "FLOAT"],
    ]);
    expect(await outputRows(out)).toEqual([]);
    expect((await rejectLines(out)).map(({ columns }) => columns)).toEqual(
      Array.from({ length: 10 }, (_, id) => ({ id: String(id) })),
    );
    expect(await faultsOfFinished(out, 0)).toEqual([]);
    expect((await scoreHere(spec)).status).toBe("already_complete");
  });

  test("rows that cannot be scored are set aside, and all others are scored right for a prediction that is not finite too", async () => {
    const model = { ...identity, nodes: [{ op: "Log", from: ["x"], to: "score" }] };
    const select =
      "SELECT row AS id, CASE row WHEN 3 THEN 0 WHEN 5 THEN -1 ELSE 1 END::FLOAT AS x FROM range(8) AS t(row)";
    const { spec, out, rewrite } = await smallJob(scratch.path, { model, select });

    await expect(scoreHere(spec)).rejects.toThrow(/row 3: the model's prediction `score` is -Infinity/);
    await rewrite(reject);
    await scoreHere(spec);

    const found = { shard: "in/a.parquet", columns: {}, column: "score", reason: "prediction_not_finite" };
    expect(await rejectLines(out)).toEqual([
      { ...found, row: 3, value: "-Infinity", columns: { id: "3" } },
      { ...found, row: 5, value: "NaN", columns: { id: "5" } },
    ]);
    expect((await outputRows(out)).map(({ id }) => id)).toEqual([0n, 1n, 2n, 4n, 6n, 7n]);
  });
});

const bad = [5, 6, 500, 999];
const select = `SELECT row AS id, CASE WHEN row IN (${bad.join(", ")}) THEN 99 ELSE row % 10 END AS code FROM range(1000) AS t(row)`;

test("a row that the model fails on ends the run with 65, naming shard and row", async () => {
  const { spec } = await smallJob(scratch.path, { model: lookup(), select });

  await expectEnd(runSpec(spec), 65, `scoring ${join(scratch.path, "in/a.parquet")}: row 5: the model fails on it: `);
});

const failing = [
  { batch: 7, commit: 13, rows: "N" as const },
  { batch: "auto", commit: 30, rows: 8 },
  { batch: 1, commit: 100, rows: "N" as const },
  { batch: 4096, commit: "auto", rows: "N" as const },
  { batch: "auto", commit: "auto", rows: 64 },
];

test.each(firstOf(failing, 2))(
  "a row that the model fails on is found and set aside alone: batches of $batch, spans of $commit, model of $rows",
  async (shape) => {
    const settings = { ...reject, commit_rows: shape.commit, engine: { batch_size: shape.batch, threads: 2 } };
    const { spec, out } = await smallJob(scratch.path, { model: lookup(shape.rows), select, ...settings });

    expect(await scoreHere(spec)).toMatchObject({ rowsScored: 996, rowsRejected: 4 });

    const good = Array.from({ length: 1000 }, (_, id) => ({ id: BigInt(id), score: (id % 10) / 2 }));
    const rows = (await outputRows(out)).map(({ id, score }) => ({ id, score }));
    expect(
      differences(
        rows,
        good.filter((_, id) => !bad.includes(id)),
      ),
    ).toEqual([]);
    const lines = await rejectLines(out);
    expect(lines.map(({ row, reason, column }) => [row, reason, column])).toEqual(
      bad.map((row) => [row, "model_failed", null]),
    );
    expect(String(lines[0]?.["value"])).toContain("99");
    expect(await faultsOfFinished(out, 996)).toEqual([]);
  },
);

const plain = "COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 0";

describe("a value that DuckDB cannot show does not hide a bad row", () => {
  const marker = 1_234_605_616_436_508_552n;

  /** The only row has `value` in `v`, as `type`, and NaN as its feature. */
  async function badRow(folder: string, value: bigint, wrap: string, type: string): Promise<string> {
    const { spec } = await smallJob(folder, {
      ...reject,
      model: identity,
      select: "SELECT 1",
      output: { columns: ["v"], parquet: { path: "out" } },
    });
    const path = join(folder, "in/a.parquet");
    await writeRows(path, `SELECT 'nan'::DOUBLE AS x, ${wrap} AS v FROM (SELECT ${type} AS t)`, plain);
    await replaceBytes(
      path,
      longBytes(marker % (type.startsWith("TIME ") ? 86_400_000_000n : 2n ** 63n)),
      longBytes(value),
    );
    return spec;
  }

  const moment = `make_timestamp(${marker})`;
  const time = `TIME '00:00:00' + to_microseconds(${marker % 86_400_000_000n})`;

  test.each([
    { name: "NaT", value: -(2n ** 63n), wrap: "t", type: moment, shown: "-290308-12-21T19:59:05.224192" },
    {
      name: "NaT in a list",
      value: -(2n ** 63n),
      wrap: "[t]",
      type: moment,
      shown: '["-290308-12-21T19:59:05.224192"]',
    },
    { name: "NaT in a struct", value: -(2n ** 63n), wrap: "{'f': t}", type: moment, shown: "-290308-12-21" },
    { name: "a time below 0", value: -1_000_000n, wrap: "t", type: time, shown: "-1000000 microseconds" },
    { name: "a time below 0 in a list", value: -1_000_000n, wrap: "[t]", type: time, shown: "-1000000 microseconds" },
  ])("$name", async ({ value, wrap, type, shown }) => {
    const spec = await badRow(scratch.path, value, wrap, type);

    expect(await scoreHere(spec)).toMatchObject({ rowsScored: 0, rowsRejected: 1 });

    expect(await rejectLines(join(scratch.path, "out"))).toMatchObject([
      { column: "x", reason: "not_finite", columns: { v: expect.stringContaining(shown) as string } },
    ]);
  });
});
