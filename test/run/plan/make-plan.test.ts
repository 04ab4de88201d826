import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { ColumnType } from "#src/columns/types.js";
import type { Contract } from "#src/models/binding/contract.js";
import { runIdOf, sameSeries } from "#src/run/plan/identity.js";
import { makePlan } from "#src/run/plan/make-plan.js";
import { parsePlan, planToText } from "#src/run/plan/parse-plan.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { emptyContract, ref } from "../../support/batches.js";
import { planOf } from "../../support/plans.js";
import { load, minimalSpec } from "../../support/spec.js";

const planFor = (text: string, contract: Contract = emptyContract, msPerRow = 0): Plan =>
  makePlan({
    runId: "daily-0123456789ab" as RunId,
    spec: load(text),
    shards: planOf([3, 0, 4], 1).input.shards,
    uniform: false,
    model: { sha256: "ab".repeat(32) },
    contract,
    msPerRow,
    target: { kind: "parquet", uri: "out" },
    dateParam: undefined,
    checks: undefined,
    createdBy: "infer-batch 1.2.3",
  });

const list = (element: ColumnType): ColumnType => ({ kind: "list", element });

const outputs = (count: number): Contract => ({
  ...emptyContract,
  outputs: Array.from({ length: count }, (_, index) => ({
    kind: "scalar",
    column: `c${index}`,
    tensor: `t${index}`,
    type: "float64",
  })),
});

test("a plan pins all that decides which rows there are and what they mean", () => {
  const text = `${minimalSpec}commit_rows: 5\ntimezone: Asia/Tokyo\nparams: { ds: x }\n`
    .replace("model:", "model:\n  inputs: { f: [a] }\n  outputs: { s: p }")
    .replace("output:", "output:\n  columns: [id]");
  const bound = { inputs: [], outputs: [], passthrough: [], fixedBatchRows: null, expressions: null };
  const asked = {
    inputs: { f: ["a"] },
    outputs: { s: "p" },
    passthrough: ["id"],
    columns: {},
    partitions: {},
    where: null,
  };
  const rules = { cast: "exact", missing: "bad_row" };
  expect(planFor(text)).toEqual({
    format: "infer-batch-plan",
    version: 1,
    createdBy: "infer-batch 1.2.3",
    runId: "daily-0123456789ab",
    job: "daily",
    params: { ds: "x" },
    dateParam: null,
    timezone: "Asia/Tokyo",
    input: {
      format: "parquet",
      rows: 7,
      shards: [
        { uri: "s0", rows: 3, sizeBytes: 100, fingerprint: "mtime:0" },
        { uri: "s1", rows: 0, sizeBytes: 101, fingerprint: "mtime:1" },
        { uri: "s2", rows: 4, sizeBytes: 102, fingerprint: "mtime:2" },
      ],
    },
    model: { uri: "model.onnx", sha256: "ab".repeat(32) },
    contract: { ...bound, ...rules },
    request: { ...asked, ...rules },
    target: { kind: "parquet", uri: "out" },
    commitRows: 5,
    staged: false,
    checks: null,
  });
});

test("a plan does not depend on keys that belong to an attempt", () => {
  expect(planFor(`${minimalSpec}engine: { batch_size: 7, threads: 3 }\n`)).toEqual(planFor(minimalSpec));
});

test("commit_rows: auto is a fixed number for narrow outputs", () => {
  expect(planFor(minimalSpec, outputs(1)).commitRows).toBe(262_144);
  expect(planFor(minimalSpec, outputs(16)).commitRows).toBe(262_144);
});

test.each([33, 100, 1000, 100_000])(
  "commit_rows: auto keeps a span of %i columns of 8 bytes within 32 MiB",
  (columns) => {
    const { commitRows } = planFor(minimalSpec, outputs(columns));
    expect(commitRows * columns * 8).toBeLessThanOrEqual(32 * 1024 * 1024);
    expect((commitRows + 1) * columns * 8).toBeGreaterThan(32 * 1024 * 1024);
  },
);

test("commit_rows: auto counts carried columns too", () => {
  const passthrough = Array.from({ length: 1000 }, (_, index) => ({
    column: `p${index}`,
    source: ref(`p${index}`, "int32"),
  }));
  expect(planFor(minimalSpec, { ...emptyContract, passthrough }).commitRows).toBe(
    Math.floor((32 * 1024 * 1024) / 4000),
  );
});

test("commit_rows: auto is at least one row", () => {
  const type = list(list(list(list("float64")))); // thought to have 64 elements each: 128 MiB a row
  const passthrough = [{ column: "p", source: ref("p", type) }];
  expect(planFor(minimalSpec, { ...emptyContract, passthrough }).commitRows).toBe(1);
});

test.each([
  [0.001, 262_144],
  [0.1, 262_144],
  [0.2, 131_072],
  [10, 2048],
  [5000, 64],
])("commit_rows: auto is about half a minute of a model that takes %d ms a row", (msPerRow, commitRows) => {
  expect(planFor(minimalSpec, outputs(1), msPerRow).commitRows).toBe(commitRows);
});

test("commit_rows: a number takes precedence over auto", () => {
  expect(planFor(`${minimalSpec}commit_rows: 3\n`, outputs(1000), 5000).commitRows).toBe(3);
});

const pinned = { runId: "daily-1", date: "2026-11-20", sha256: "a".repeat(64), place: "../dt=2026-11-20" };

test("a plan is read as it was written", () => {
  const planned = planOf([5, 0, 3], 4);
  const plan: Plan = {
    ...planned,
    model: { ...planned.model, version: "7", origin: { runId: "4bf8", tags: { stage: "prod" } } },
    staged: true,
    dateParam: "ds",
    checks: { baseline: [pinned] },
  };
  expect(parsePlan(planToText(plan))).toEqual(plan);
});

test("a plan with tokenizers is read as it was written", () => {
  const planned = planOf([5], 4);
  const column = { name: "body", path: ["body"], type: "utf8" } as const;
  const tokens = {
    tokenizer: "b".repeat(64),
    dtype: "int64",
    width: 32,
    cut: "right",
    value: 0,
    side: "left",
    shrink: true,
    sorted: true,
    masks: [{ input: "mask", dtype: "int64" }],
    types: [],
  } as const;
  const plan: Plan = {
    ...planned,
    model: {
      ...planned.model,
      tokenizers: [{ uri: "hf://org/repo/tokenizer.json", sha256: "b".repeat(64), version: "1f" }],
    },
    contract: { ...planned.contract, inputs: [{ kind: "text", input: "ids", rank: 1, column, tokens }] },
    request: {
      ...planned.request,
      inputs: {
        ids: { tokenize: "body", tokenizer: "hf://org/repo/tokenizer.json", max: 32, shrink: true },
        mask: { mask_of: "ids" },
        kinds: { types_of: "ids" },
      },
    },
  };
  expect(parsePlan(planToText(plan))).toEqual(plan);
});

test.each([
  ["without one of its fields", { staged: undefined }],
  ["with a field of another version", { profiles: 2 }],
  ["of a later version", { version: 2 }],
])("a plan %s is none that this program can read", (_, change) => {
  expect(parsePlan(JSON.stringify({ ...planOf([5], 4), ...change }))).toBeUndefined();
});

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const idOf = (job: string, params: Readonly<Record<string, string>>): string => runIdOf(job, params, sha256);
const params = fc.dictionary(fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,5}$/), fc.string(), { noNullPrototype: true });

test("a run's id is the same as in earlier releases", () => {
  expect([idOf("job", {}), idOf("job", { ds: "2026-11-20", region: "eu" })]).toMatchInlineSnapshot(`
      [
        "job-4f53cda18c2b",
        "job-341d3d1cdc3c",
      ]
    `);
});

test("a run's id does not depend on the order of params", () => {
  fc.assert(
    fc.property(params, (given) => {
      const reversed = Object.fromEntries(Object.entries(given).toReversed());
      expect(idOf("job", reversed)).toBe(idOf("job", given));
    }),
  );
});

test("a run's id differs when any param differs", () => {
  fc.assert(
    fc.property(params, params, (one, other) => {
      const same = Object.keys({ ...one, ...other }).every((name) => one[name] === other[name]);
      expect(idOf("job", one) === idOf("job", other)).toBe(same);
    }),
  );
});

test.each([
  [
    { a: "1", b: "2" },
    { a: "2", b: "1" },
  ],
  [{ a: "b" }, { b: "a" }],
  [{ a: '","b' }, { a: "", b: "" }],
  [{ a: "" }, {}],
  [{ a: "1" }, { a: "1.0" }],
  [{ a: "1" }, { A: "1" }],
])("a run's id with params %j differs from that with %j", (one, other) => {
  expect(idOf("job", one)).not.toBe(idOf("job", other));
});

test("a run's id differs between jobs with the same params", () => {
  expect(idOf("a", { ds: "x" })).not.toBe(idOf("b", { ds: "x" }));
});

test.each([
  [{}, {}],
  [{ ds: "2026-11-01" }, { ds: "2026-11-02" }],
  [{ ds: "20261101" }, { ds: "2026-12" }],
  [{ ds: "2026-W48" }, { ds: "2026-11-02T03:00:00+01:00" }],
  [
    { ds: "2026-11-01", region: "EU" },
    { ds: "2026-11-02", region: "EU" },
  ],
])("runs with the params %j and %j belong to one series", (one, other) => {
  expect(sameSeries(one, other)).toBe(true);
  expect(sameSeries(other, one)).toBe(true);
});

test.each([
  [{ region: "EU" }, { region: "US" }],
  [
    { ds: "2026-11-01", region: "EU" },
    { ds: "2026-11-02", region: "US" },
  ],
  [{ tenant: "17" }, { tenant: "1707" }],
  [{ tenant: "20261301" }, { tenant: "20269999" }],
  [{ ds: "2026-11-01" }, {}],
])("runs with the params %j and %j belong to two series", (one, other) => {
  expect(sameSeries(one, other)).toBe(false);
  expect(sameSeries(other, one)).toBe(false);
});
