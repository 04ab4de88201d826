import { expect, test } from "vitest";
import { takeRows } from "#src/columns/columns.js";

const lists = {
  kind: "list",
  offsets: Uint32Array.of(0, 3, 5),
  child: { kind: "fixed", elementsPerValue: 1, data: Int32Array.of(1, 2, 3, 4, 5), valid: undefined },
  valid: undefined,
} as const;
const type = { kind: "list", element: "int32" } as const;

test("lists are taken in any order, NULLs among them, up to a limit of elements", () => {
  const taken = takeRows(type, lists, {
    indices: Uint32Array.of(1, 0, 1, 0),
    valid: Uint8Array.of(1, 1, 0, 1),
    limit: 11,
  });

  expect(taken).toMatchObject({ offsets: Uint32Array.of(0, 2, 5, 8, 11), valid: Uint8Array.of(1, 1, 0, 1) });
  expect(() => takeRows(type, lists, { indices: new Uint32Array(4), valid: undefined, limit: 11 })).toThrow(
    "12 elements of lists in 4 rows",
  );
});
