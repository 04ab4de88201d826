import { describe, expect, test } from "vitest";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { scoreHere } from "../support/score.js";

describe("a struct with a map in it", () => {
  const select =
    "SELECT 1::BIGINT AS id, {'a': 1.5::FLOAT, 'm': MAP {'k': 1}, 'in': {'b': 2::INTEGER, 'm': MAP {1: 2}}} AS s";

  test("a struct with a map in it gives the fields that can be read", async () => {
    const job = await smallJob(scratch.path, {
      model: identity,
      select,
      modelSpec: { inputs: { x: ["s.a"] } },
      output: { columns: ["id", "s.in.b"] },
    });

    await scoreHere(job.spec);

    expect(await outputRows(job.out)).toEqual([{ id: 1n, s_in_b: 2, score: 1.5 }]);
  });

  test.each(["s", "s.m", "s.in", "s.in.m"])("a struct with a map in it is refused as %s", async (column) => {
    const job = await smallJob(scratch.path, {
      model: identity,
      select,
      modelSpec: { inputs: { x: ["s.a"] } },
      output: { columns: [column] },
    });

    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /output\.columns names `s[a-z.]*`, whose type .*MAP.* is not supported/,
    );
  });
});
