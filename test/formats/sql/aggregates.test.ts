import { expect, test } from "vitest";
import { openAggregates } from "#src/formats/sql/aggregates.js";

const columns = [
  { name: "id", type: "int32" },
  { name: "k", type: "utf8" },
  { name: "score", type: "float32" },
] as const;

test.each([
  ["1 > 0", "it has no aggregate"],
  ["score > 1", "`score` is not inside"],
  ["avg(score) > id", "`id` is not inside count, sum, avg, min or max"],
  ["avg(score)", "the condition is DOUBLE, expected BOOLEAN"],
  ["avg(scores) > 1", "there is no output column `scores`; did you mean `score`?"],
  ["avg(x) > 1", "there is no output column `x`"],
  ["sum(k) > 1", "`sum` has type VARCHAR, expected a number or BOOLEAN"],
  ["avg(sum(score)) > 1", "`sum` is an aggregate"],
  ["count(distinct k) > 1", "`count` has DISTINCT, which checks.sql does not support"],
  ["count(*) filter (where score > 1) > 1", "`count` has FILTER, which checks.sql does not support"],
  ["infer_batch_aggregate_0 > 1 and count(*) > 1", "names that begin with infer_batch_aggregate_"],
  ["avg(score) > getvariable('a')", "checking the expression (… > getvariable('a')): `getvariable`"],
  ["stddev(score) > 1", "`stddev` is an aggregate"],
  ["avg(random()) > 1", "`random` does not depend on its arguments alone"],
  ["count(*) > (select 1)", "it has a subquery"],
  ["avg(score) over () > 1", "it has a window function"],
  ["count(*) > 1; drop table x", "it is more than a SELECT"],
  ["count(*) > 1) from read_text('/etc/passwd') where (true", "syntax error"],
  [Array.from({ length: 33 }, (_, index) => `sum(id+${index})=0`).join(" and "), "33 different arguments, at most 32"],
])("a condition of checks.sql that cannot be checked is refused: %s", async (one, message) => {
  const opened = openAggregates({ one }, { columns, timezone: "UTC", memoryBytes: 64 * 1024 ** 2 });
  await expect(opened).rejects.toMatchObject({ code: "SPEC_INVALID", message: expect.stringContaining(message) });
});
