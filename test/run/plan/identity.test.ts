import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { runIdOf } from "#src/run/plan/identity.js";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const idOf = (job: string, params: Readonly<Record<string, string>>): string => runIdOf(job, params, sha256);
const params = fc.dictionary(fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,5}$/), fc.string(), { noNullPrototype: true });

describe("a run's id", () => {
  test("a run's id is the job's name and twelve hex digits", () => {
    expect(idOf("daily-churn", { ds: "2026-11-20" })).toMatch(/^daily-churn-[0-9a-f]{12}$/);
  });

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
});
