import { execFileSync } from "node:child_process";
import { statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { compareSpec, pinDifference, reuseShards, touchHint } from "#src/run/plan/compare.js";
import { bindingRequest } from "#src/run/plan/make-plan.js";
import type { PlannedShard } from "#src/run/plan/plan.js";
import { scratch } from "../../support/job.js";
import { planOf } from "../../support/plans.js";
import { load, minimalSpec } from "../../support/spec.js";

const plan = planOf([5, 0, 5], 4);
const copies = plan.input.shards.map((shard) => ({ ...shard }));

test("reuseShards replaces a plan's shards with equal ones", () => {
  const taken = reuseShards(plan, copies);
  expect(taken.input.shards).toBe(copies);
  expect(taken).toEqual(plan);
});

test.for<[string, Partial<PlannedShard>]>([
  ["uri", { uri: "other" }],
  ["size", { sizeBytes: 77 }],
  ["fingerprint", { fingerprint: "mtime:77" }],
  ["rows", { rows: 77 }],
  ["sha256", { sha256: "77" }],
])("reuseShards keeps a plan's shards when one differs in its %s", ([, other]) => {
  const changed = copies.map((shard, index) => (index === 1 ? { ...shard, ...other } : shard));
  expect(reuseShards(plan, changed)).toBe(plan);
});

test("reuseShards keeps a plan's shards when there are more or fewer", () => {
  expect(reuseShards(plan, copies.slice(1))).toBe(plan);
  expect(reuseShards(plan, [...copies, ...copies])).toBe(plan);
});

describe("comparing the spec with the plan", () => {
  const text = minimalSpec
    .replace("model:", "model:\n  inputs: { features: [a, b] }\n  outputs: { score: p }")
    .replace("output:", "output:\n  columns: [id]");
  const spec = load(text);
  const changedPlan = { ...planOf([5], 4), request: bindingRequest(spec) };
  const from = (uri: string): typeof changedPlan => ({ ...changedPlan, model: { ...changedPlan.model, uri } });
  const to = (path: string): typeof spec => ({ ...spec, model: { ...spec.model, path } });

  test("compareSpec compares a URI of a model as it is written, and leaves files to their digest", () => {
    expect(compareSpec(from("models/a.onnx"), to("models/b.onnx"))).toEqual([]);
    expect(compareSpec(from("models:/churn@champion"), to("models:/churn@champion"))).toEqual([]);
    for (const uri of ["models:/churn/7", "hf://o/r/m.onnx", "s3://b/m.onnx", "https://h/m.onnx"]) {
      const said = [`model.path is "${uri}", planned "models/a.onnx"`];
      expect(compareSpec(from("models/a.onnx"), to(uri))).toEqual(said);
    }
  });

  test("compareSpec says what the spec asks for and what was planned", () => {
    const other = load(
      `${text}timezone: Asia/Tokyo\n`
        .replace("[a, b]", "[b, a]")
        .replace("score: p", "score: q")
        .replace("[id]", "[id, day]"),
    );
    expect(compareSpec(changedPlan, other)).toMatchInlineSnapshot(`
      [
        "timezone is "Asia/Tokyo", planned "UTC"",
        "model.inputs is {"features":["b","a"]}, planned {"features":["a","b"]}",
        "model.outputs is {"score":"q"}, planned {"score":"p"}",
        "output.columns is ["id","day"], planned ["id"]",
      ]
    `);
  });

  test("compareSpec tells a default from the same value written out", () => {
    expect(compareSpec({ ...changedPlan, request: bindingRequest(load(minimalSpec)) }, spec)).toHaveLength(3);
  });
});

const unchecked = { ...planOf([5], 4), request: bindingRequest(load(minimalSpec)) };
const checked = { ...unchecked, staged: true, checks: { baseline: [] } };

test("compareSpec finds checks that were added to or removed from a spec", () => {
  expect(compareSpec(unchecked, load(`${minimalSpec}checks: {}\n`))).toEqual(['checks is "present", planned "absent"']);
  expect(compareSpec(checked, load(minimalSpec))).toEqual(['checks is "absent", planned "present"']);
});

test.each(["{}", "{ on_fail: warn }", "{ rejects: 50% }"])(
  "checks in the spec of a planned run do not differ where thresholds or on_fail change: %s",
  (checks) => {
    expect(compareSpec(checked, load(`${minimalSpec}checks: ${checks}\n`))).toEqual([]);
  },
);

test("checks of a planned run differ if golden rows, slices or conditions of checks.sql differ", () => {
  const golden = { uri: "golden.parquet", sha256: "ab".repeat(32) };
  const pinned = { ...checked, checks: { ...checked.checks, golden, slices: ["k"], sql: { most: "count(*) > 1" } } };
  const same = "{ golden: { path: golden.parquet, atol: 1 }, slices: [k], sql: { most: count(*) > 1 } }";
  expect(compareSpec(pinned, load(`${minimalSpec}checks: ${same}\n`))).toEqual([]);
  expect(compareSpec(pinned, load(`${minimalSpec}checks: { sql: { most: count(*) > 2 } }\n`))).toEqual([
    'checks.golden.path is null, planned "golden.parquet"',
    'checks.slices is null, planned ["k"]',
    'checks.sql is {"most":"count(*) > 2"}, planned {"most":"count(*) > 1"}',
  ]);
});

const planned = { uri: "in/a.parquet", sizeBytes: 3310, fingerprint: "mtime:1763805600123456789" };

test.each([
  [planned, undefined],
  [{ ...planned, sizeBytes: 10 }, "it has 10 bytes, planned 3310"],
  [
    { ...planned, fingerprint: "mtime:1763805601000000000" },
    "it has the planned 3310 bytes, but was modified 2025-11-22T10:00:01Z, planned 2025-11-22T10:00:00.123456789Z",
  ],
  [
    { ...planned, fingerprint: "etag:x" },
    "it has the planned 3310 bytes, but is etag:x, planned mtime:1763805600123456789",
  ],
])("pinDifference describes a shard that is now %j", (now, difference) => {
  expect(pinDifference(planned, now)).toBe(difference);
});

const now = { ...planned, fingerprint: "mtime:1763805601000000000" };

test("touchHint names the planned time, and the digest when there is one", () => {
  expect(touchHint(planned, now, "../in/a.parquet")).toBe(
    "if its content has not changed, set its planned time again: touch -c -d 2025-11-22T10:00:00.123456789Z ../in/a.parquet",
  );
  expect(touchHint({ ...planned, sha256: "0123456789abcdef" }, now, "a")).toContain(
    "if `sha256sum` still prints 0123456789ab…, set",
  );
  expect(touchHint(planned, now, "/in/a b$(x).parquet")).toMatch(/Z '\/in\/a b\$\(x\)\.parquet'$/);
});

test("touchHint has no command when the size differs, or in a store", () => {
  expect(touchHint(planned, { ...planned, sizeBytes: 1 }, "a")).toBeUndefined();
  const inStore = { ...planned, fingerprint: "etag:a" };
  expect(touchHint(inStore, { ...planned, fingerprint: "etag:b" }, "a")).toBeUndefined();
});

test("touchHint has a command that restores a file's time to the nanosecond", async () => {
  const uri = join(scratch.path, "a.parquet");
  const pin = (): typeof planned => ({
    uri,
    sizeBytes: 0,
    fingerprint: `mtime:${statSync(uri, { bigint: true }).mtimeNs}`,
  });
  writeFileSync(uri, "");
  const before = pin();
  utimesSync(uri, 1, 1_700_000_000);
  const [, command = ""] = /(touch -c -d .*)$/.exec(touchHint(before, pin(), uri) ?? "") ?? [];
  expect(pinDifference(before, pin())).toContain("but was modified 2023-11-14T22:13:20Z");
  execFileSync("sh", ["-c", command]);
  expect(pinDifference(before, pin())).toBeUndefined();
});
