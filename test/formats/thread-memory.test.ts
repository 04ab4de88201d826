import { expect, test } from "vitest";
import type { Contract, PassthroughBinding } from "#src/models/binding/contract.js";
import { decodingThreads } from "#src/formats/unit-sizes.js";
import { emptyContract, matrixBinding, ref } from "../support/batches.js";

interface Case extends Pick<Contract, "inputs"> {
  readonly what: string;
  readonly passthrough?: readonly PassthroughBinding[];
  readonly on2: number;
  readonly on16: number;
}

const columns = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);

const carried = (count: number): PassthroughBinding[] =>
  columns(count).map((column) => ({ column, source: ref(column, "float64") }));

test.each<Case>([
  { what: "few columns", inputs: [matrixBinding(columns(32))], on2: 2, on16: 16 },
  { what: "200 columns", inputs: [matrixBinding(columns(200))], on2: 1, on16: 10 },
  { what: "57 doubles", inputs: [], passthrough: carried(57), on2: 2, on16: 16 },
  { what: "200 doubles", inputs: [], passthrough: carried(200), on2: 1, on16: 5 },
  { what: "10,000 columns", inputs: [matrixBinding(columns(10_000))], on2: 1, on16: 1 },
  {
    what: "a list of 400",
    inputs: [{ kind: "list" as const, input: "x", dtype: "float32" as const, width: 400, column: ref("vector") }],
    on2: 1,
    on16: 5,
  },
])("rows of $what are decoded by as many threads as memory allows", ({ inputs, passthrough = [], on2, on16 }) => {
  const projection = { ...emptyContract, inputs, passthrough };
  expect([decodingThreads(2, projection), decodingThreads(16, projection)]).toEqual([on2, on16]);
});
