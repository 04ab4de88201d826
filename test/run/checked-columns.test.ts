import { expect, test } from "vitest";
import type { Contract } from "#src/models/binding/contract.js";
import { requireColumns } from "#src/run/checked-output.js";
import type { JobContext } from "#src/flow/context.js";

const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}${at}`);

const contract = {
  outputs: numbered("p", 65).map((column) => ({ column, type: "float32" })),
  passthrough: numbered("c", 129).map((column) => ({ column, source: { name: column, type: "utf8" } })),
} as unknown as Contract;

const requireLimit = (outputs: object) => (): void => {
  const spec = { checks: { outputs }, output: {} } as unknown as JobContext["spec"];
  requireColumns({ spec, where: (path) => path.join(".") }, contract);
};

test("a limit for a column that comes after those that are profiled is refused, and says so", () => {
  expect(requireLimit({ p63: { range: [0, 1] }, c127: { nulls: 0 } })).not.toThrow();
  expect(requireLimit({ p64: { nulls: 0 } })).toThrow("`p64`, which is not one of the first 64 predicted columns");
  expect(requireLimit({ c128: { nulls: 0 } })).toThrow(
    "`c128`, which is not one of the first 128 columns from the input",
  );
});

test("values that a column of whole numbers or booleans can never have are refused, and any text is fine for texts", () => {
  const typed = { label: "utf8", class: "int64", churns: "bool" };
  const outputs = Object.entries(typed).map(([column, type]) => ({ column, type }));
  const limited =
    (column: string, ...values: string[]) =>
    (): void => {
      const spec = { checks: { outputs: { [column]: { in: values } } }, output: {} } as unknown as JobContext["spec"];
      requireColumns({ spec, where: (path) => path.join(".") }, { ...contract, outputs } as unknown as Contract);
    };
  expect(limited("label", "1", "late")).not.toThrow();
  expect(limited("class", "1", "-2")).not.toThrow();
  expect(limited("churns", "true")).not.toThrow();
  expect(limited("class", "1", "late")).toThrow(
    "reading checks.outputs.class.in: late is no whole number, and `class` is int64",
  );
  expect(limited("churns", "yes")).toThrow("yes is no boolean, and `churns` is bool");
  expect(limited("label", "2097152")).not.toThrow();
  expect(limited("class", "2097151", "-2097151")).not.toThrow();
  for (const large of ["2097152", "-2097152"]) {
    expect(limited("class", "1", large)).toThrow(
      expect.objectContaining({
        exitCode: 64,
        message: expect.stringContaining(`reading checks.outputs.class.in: ${large} is too large`) as string,
        hint: expect.stringContaining("checks.sql") as string,
      }),
    );
  }
});

const requireKey = (name: string) => (): void => {
  const spec = { checks: { outputs: {}, unique: [name] }, output: {} } as unknown as JobContext["spec"];
  const passthrough = ["parcel_id", "place_north", "place_south"].map((column) => ({
    column,
    source: { name: column, type: "int64" },
  }));
  requireColumns({ spec, where: (path) => path.join(".") }, { outputs: [], passthrough } as unknown as Contract);
};

test("a name that is the beginning of one column's only is taken for it", () => {
  expect(requireKey("parcel")).toThrow("there is no output column `parcel`; did you mean `parcel_id`?");
  expect(requireKey("place")).toThrow(/no output column `place`$/);
});
