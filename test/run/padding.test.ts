import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DuckDBListValue } from "@duckdb/node-api";
import { describe, expect, test } from "vitest";
import { openJob } from "#src/job/open.js";
import { contractLines } from "#src/report/plan-text.js";
import { previewContract } from "#src/run/preview.js";
import { fixtureAsArrow, writeArrow } from "../support/arrow.js";
import { refusalOf, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import type { SmallModel, TensorShape } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { type Row, writeRows } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { leaveUnfinished, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

/** Gives each input [N, 4] out again, as `out_<name>`. */
function identityOf(dtypes: Readonly<Record<string, TensorShape["dtype"]>>): SmallModel {
  const entries = Object.entries(dtypes);
  const tensors = (prefix: string): TensorShape[] =>
    entries.map(([name, dtype]) => ({ name: prefix + name, dtype, shape: ["N", 4] }));
  return {
    inputs: tensors(""),
    outputs: tensors("out_"),
    nodes: entries.map(([name]) => ({ op: "Identity", from: [name], to: `out_${name}` })),
  };
}

const plainRows = (rows: readonly Row[]): Row[] =>
  rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]) => [name, value instanceof DuckDBListValue ? value.items : value]),
    ),
  );

type Format = "parquet" | "arrow" | "arrows";

async function jobOver(
  folder: string,
  format: Format,
  { select, input = {}, ...job }: { model: SmallModel; select: string; input?: object; [key: string]: unknown },
): ReturnType<typeof smallJob> {
  const made = await smallJob(folder, { ...job, select: "SELECT 1", input: { path: `in/b.${format}`, ...input } });
  const path = join(folder, `in/b.${format}`);
  await (format === "parquet"
    ? writeRows(path, select)
    : writeArrow(path, select, { kind: format === "arrow" ? "file" : "stream", batchRows: 37 }));
  return made;
}

/** A list of as many elements as the row's number says. */
const listSql = (type: string, sql: string): string => `list_transform(range(i % 5), lambda k: (${sql})::${type})`;

/** What `identityOf` makes of such a row. */
const expected = (id: number): Row => {
  const length = id % 5;
  const ids = Array.from({ length }, (_, index) => BigInt(id + index - 50));
  const filled = <T>(value: T, padding: T): T[] =>
    Array.from({ length: 4 }, (_, at) => (at < length ? value : padding));
  return {
    id: BigInt(id),
    out_mask: filled(true, false).toReversed(),
    out_ids: [...Array.from({ length: 4 - length }, () => -1n), ...ids],
    out_kinds: Array.from({ length: 4 }, (_, at) => (at < length ? BigInt(-at) : 0n)),
    out_reals: filled(id / 8, 0.5),
    out_flags: filled(id % 2 === 0, true),
  };
};

const model = identityOf({ mask: "bool", ids: "int64", kinds: "int64", reals: "float32", flags: "bool" });
const modelSpec = {
  inputs: {
    mask: { mask_of: "ids" },
    ids: { column: "ids", pad: { value: -1, side: "left" } },
    kinds: { column: "kinds", pad: {} },
    reals: { column: "reals", pad: { to: 4, value: 0.5 } },
    flags: { column: "flags", pad: { value: 1 } },
  },
};
const select = `SELECT i AS id, ${listSql("INTEGER", "i + k - 50")} AS ids, ${listSql("TINYINT", "-k")} AS kinds,
    ${listSql("DOUBLE", "i / 8")} AS reals, ${listSql("BOOLEAN", "i % 2 = 0")} AS flags FROM range(100) t(i)`;
test.each(
  (["parquet", "arrow", "arrows"] as const).flatMap((format) =>
    [{}, { where: "id % 7 <> 3", columns: { kinds: "list_transform(kinds, lambda k: k)" } }].map((input) => ({
      format,
      input,
    })),
  ),
)("lists of each row's own length are scored from $format, with $input", async ({ format, input }) => {
  const { spec, out } = await jobOver(scratch.path, format, {
    model,
    modelSpec,
    select,
    input,
    commit_rows: 17,
    engine: { batch_size: 6 },
  });

  await scoreHere(spec);

  const ids = Array.from({ length: 100 }, (_, id) => id).filter((id) => !("where" in input) || id % 7 !== 3);
  expect(plainRows(await outputRows(out))).toEqual(ids.map((id) => expected(id)));
});

test.each(["parquet", "arrow"] as const)(
  "lists of each row's own length are cast as numbers are, from %s",
  async (format) => {
    const lists = "([1, 2], [0.1]), ([1099511627776], [1]), ([3], [1e300]), ([NULL], [1]), ([4], [NULL])";
    const { spec, out } = await jobOver(scratch.path, format, {
      model: identityOf({ small: "int32", half: "float16" }),
      modelSpec: { inputs: { small: { column: "a", pad: {} }, half: { column: "b", pad: {} } } },
      select: `SELECT row_number() OVER () AS id, a::BIGINT[] AS a, b::DOUBLE[] AS b FROM (VALUES ${lists}) t(a, b)`,
      ...reject,
    });
    await scoreHere(spec);
    const [first, ...others] = plainRows(await outputRows(out));
    expect(first).toEqual({ id: 1n, out_small: [1, 2, 0, 0], out_half: [0.0999755859375, 0, 0, 0] });
    expect(others).toEqual([]);
    expect((await rejectLines(out)).map(({ row, column, reason, value }) => [row, column, reason, value])).toEqual([
      [1, "a", "does_not_fit", "[1099511627776]"],
      [2, "b", "does_not_fit", "[1e+300]"],
      [3, "a", "does_not_fit", "[NULL]"],
      [4, "b", "does_not_fit", "[NULL]"],
    ]);
  },
);

const fixture = fixtureNamed("sentences-mean");
const { inputs } = fixture.binding as { inputs: Record<string, object> };
const shrinking = Object.fromEntries(
  Object.entries(inputs).map(([name, source]) => [
    name,
    "pad" in source ? { ...source, pad: { to: 60, shrink: true, value: 1 } } : source,
  ]),
);

test.each(["parquet", "arrow"])(
  "a token model gives the same answers if batches are only as wide as needed, from %s",
  async (format) => {
    if (format === "arrow") {
      await mkdir(join(scratch.path, "in"));
      await fixtureAsArrow(join(scratch.path, "in"), fixture.table, "file");
    }
    const overrides: SpecOverrides = {
      ...(format === "arrow" ? { input: { path: "in/*.arrow" } } : {}),
      model: { inputs: shrinking },
      engine: { batch_size: 7 },
      commit_rows: 40,
    };

    await scoreHere(await writeSpec(scratch.path, fixture, overrides));

    expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
  },
);

test("a token model is shown by plan and validate", async () => {
  const binding = {
    ...shrinking,
    token_type_ids: { column: "token_type_ids", pad: { to: 48, side: "left", truncate: true } },
  };
  const spec = await writeSpec(scratch.path, fixture, { model: { inputs: binding, outputs: { label: "label" } } });
  await using job = await openJob(spec, { param: [] }, {});

  const contract = await previewContract(job);

  expect((contract === undefined ? [] : contractLines(contract)).join("\n").concat("\n")).toMatchInlineSnapshot(`
      "input    input_ids int64 [N,60] <- list input_ids, padded with 1 on the right, to the longest of a batch
      input    attention_mask int64 [N,60] <- mask of input_ids
      input    token_type_ids int64 [N,48] <- list token_type_ids, padded with 0 on the left, truncated
      output   id int64 <- column id
      output   label int64 <- tensor label
      "
    `);
});

test("a token model with other padding is a changed spec", async () => {
  const spec = await writeSpec(scratch.path, fixture, { commit_rows: 40 });
  await leaveUnfinished(spec, join(scratch.path, "out"), (span) => span === 0);
  await writeSpec(scratch.path, fixture, { commit_rows: 40, model: { inputs: shrinking } });

  expect(await refusalOf(scoreHere(spec))).toMatch(/^66 [^]*model\.inputs is .*"shrink":true/);
});

test("a token model may be given only the tokens, and its other inputs are computed", async () => {
  const { spec, out } = await jobOver(scratch.path, "arrow", {
    model: identityOf({ input_ids: "int64", token_type_ids: "int64" }),
    select: "SELECT i AS id, [i, 5] AS tokens FROM range(2) t(i)",
    input: { columns: { none: "[]::BIGINT[]" } },
    modelSpec: {
      inputs: { input_ids: { column: "tokens", pad: {} }, token_type_ids: { column: "none", pad: {} } },
    },
  });

  await scoreHere(spec);

  expect(plainRows(await outputRows(out))).toEqual(
    [0n, 1n].map((id) => ({ id, out_input_ids: [id, 5n, 0n, 0n], out_token_type_ids: [0n, 0n, 0n, 0n] })),
  );
});

describe("a list that is too long", () => {
  const ownSelect = "SELECT i AS id, range(i + 3) AS tokens FROM range(4) t(i)";
  const job = (pad: object): Parameters<typeof smallJob>[1] => ({
    model: identityOf({ ids: "int64" }),
    select: ownSelect,
    modelSpec: { inputs: { ids: { column: "tokens", pad } } },
  });

  test("a list that is too long ends the run with its length and a remedy", async () => {
    const { spec } = await smallJob(scratch.path, job({}));
    expect((await refusalOf(scoreHere(spec))).replace(scratch.path, "…")).toMatchInlineSnapshot(`
      "65 BAD_ROW
      scoring …/in/a.parquet: row 2, column \`tokens\` is a list of 5 elements, more than int64 [N,4] takes
      hint: pad.truncate: true scores the first 4 elements, a higher pad.to more where the model takes them; on_bad_row: reject sets such rows aside. Committed spans are kept"
    `);
  });

  test("a list that is too long is rejected with its length, or truncated", async () => {
    const { spec, out, rewrite } = await smallJob(scratch.path, { ...job({}), ...reject });
    await scoreHere(spec);
    expect((await outputRows(out)).map(({ id }) => id)).toEqual([0n, 1n]);
    expect((await rejectLines(out)).map(({ row, reason, value }) => [row, reason, value])).toEqual([
      [2, "too_long", "5 elements"],
      [3, "too_long", "6 elements"],
    ]);
    const { modelSpec: ownModel = {} } = job({ truncate: true });
    await rewrite({ model: ownModel, output: { columns: ["id"], parquet: { path: "cut" } } });
    await scoreHere(spec);
    const rows = plainRows(await outputRows(out.replace(/out$/, "cut")));
    expect(rows.map(({ out_ids: ids }) => ids)).toEqual([[0n, 1n, 2n, 0n], ...[0, 1, 2].map(() => [0n, 1n, 2n, 3n])]);
  });
});

test("a NULL list ends the run, and coalesce(…, []) lets it through", async () => {
  const ownModelSpec = { inputs: { ids: { column: "tokens", pad: {} } } };
  const { spec, out, rewrite } = await smallJob(scratch.path, {
    model: identityOf({ ids: "int64" }),
    select: "SELECT 1 AS id, NULL::INTEGER[] AS tokens",
    modelSpec: ownModelSpec,
  });
  expect((await refusalOf(scoreHere(spec))).replace(scratch.path, "…")).toMatchInlineSnapshot(`
    "65 BAD_ROW
    scoring …/in/a.parquet: row 0, column \`tokens\` is NULL
    hint: correct the input and run the same command again; input.columns: { tokens: "coalesce(tokens, [])" } makes NULL a list of no elements; on_bad_row: reject sets such rows aside. Committed spans are kept"
  `);
  await rewrite({
    input: { columns: { tokens: "coalesce(tokens, [])" } },
    model: ownModelSpec,
    output: { columns: ["id"], parquet: { path: "filled" } },
  });
  await scoreHere(spec);
  expect(plainRows(await outputRows(out.replace(/out$/, "filled")))).toEqual([{ id: 1, out_ids: [0n, 0n, 0n, 0n] }]);
});

const largest: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", "S"] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "ReduceMax", from: ["x"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
};

test.each([
  [
    "s.tokens",
    "CASE WHEN i = 0 THEN {'tokens': NULL::INT[]} ELSE {'tokens': [1]} END AS s",
    /input\.columns: \{ lists: "coalesce\(s\.tokens, \[\]\)" \}, bound under model\.inputs in its place,/,
  ],
  [
    "tokens",
    "CASE WHEN i = 0 THEN [1.5, NULL] ELSE [1.0] END AS tokens",
    /each element must be a number that float32 can hold, or NULL with model\.missing: nan/,
  ],
  ["tokens", "CASE WHEN i = 0 THEN ['nan'::FLOAT] ELSE [1.0] END AS tokens", /model\.missing: nan lets NaN through/],
])("a bad list of %s comes with what lets it be scored", async (column, ownSelect, hint) => {
  const { spec } = await smallJob(scratch.path, {
    model: largest,
    select: `SELECT i AS id, ${ownSelect} FROM range(3) t(i)`,
    modelSpec: { inputs: { x: { column, pad: { to: 4 } } } },
  });
  expect(await refusalOf(scoreHere(spec))).toMatch(hint);
});

test("a token that the model fails on is found, however wide the batches are", async () => {
  const ownModel: SmallModel = {
    inputs: [{ name: "ids", dtype: "int64", shape: ["N", "S"] }],
    outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
    nodes: [
      { op: "Gather", from: ["table", "ids"], to: "found" },
      { op: "ReduceMax", from: ["found"], to: "score", attributes: { axes: [1], keepdims: 1 } },
    ],
    constants: [{ name: "table", values: Array.from({ length: 10 }, (_, index) => index / 2) }],
  };
  const { spec, out } = await smallJob(scratch.path, {
    model: ownModel,
    select:
      "SELECT i AS id, CASE WHEN i = 13 THEN [3, 11] ELSE [i % 10] || range(i % 4) END AS tokens FROM range(50) t(i)",
    modelSpec: { inputs: { ids: { column: "tokens", pad: { to: 100, shrink: true } } } },
    engine: { batch_size: 20 },
    ...reject,
  });

  await scoreHere(spec);

  const rows = await outputRows(out);
  expect(rows.map(({ id }) => Number(id))).toEqual(Array.from({ length: 50 }, (_, id) => id).filter((id) => id !== 13));
  expect(rows.every(({ id, score }) => score === Math.max(Number(id) % 10, (Number(id) % 4) - 1) / 2)).toBe(true);
  expect((await rejectLines(out)).map(({ row, reason }) => [row, reason])).toEqual([[13, "model_failed"]]);
});
