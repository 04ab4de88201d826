import { expect, test } from "vitest";
import type { Contract } from "#src/binding/contract.js";
import { requireColumns } from "#src/run/judging/require-columns.js";
import type { JobContext } from "#src/scoring/context.js";

const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}${at}`);

const contract = {
  outputs: numbered("p", 33).map((column) => ({ column, type: "float32" })),
  passthrough: numbered("c", 129).map((column) => ({ column, source: { name: column, type: "utf8" } })),
} as unknown as Contract;

const requireLimit = (outputs: object) => (): void => {
  const spec = { checks: { outputs }, output: {} } as unknown as JobContext["spec"];
  requireColumns({ spec, where: (path) => path.join(".") }, contract);
};

test("a limit for a column that comes after those that are profiled is refused, and says so", () => {
  expect(requireLimit({ p31: { range: [0, 1] }, c127: { nulls: 0 } })).not.toThrow();
  expect(requireLimit({ p32: { nulls: 0 } })).toThrow("`p32`, which is not one of the first 32 predicted columns");
  expect(requireLimit({ c128: { nulls: 0 } })).toThrow(
    "`c128`, which is not one of the first 128 columns from the input",
  );
});
