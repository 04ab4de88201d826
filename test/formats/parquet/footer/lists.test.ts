import { expect, test } from "vitest";
import { leavesOf, type ListLevels, readElement, type SchemaElement } from "#src/formats/parquet/footer.js";

const [required, optional, repeated] = [0, 1, 2];

function group(name: string, repetition: number, children: number, annotation = ""): SchemaElement {
  return { name, repetition, children, fieldId: undefined, annotation, utcNanosAt: undefined, type: undefined };
}

function leaf(name: string, repetition: number): SchemaElement {
  return { name, repetition, children: 0, fieldId: undefined, annotation: "", utcNanosAt: undefined, type: 4 };
}

function listsOf(...elements: readonly SchemaElement[]): (ListLevels | undefined)[] {
  return leavesOf([group("table", required, 1), ...elements]).leaves.map(({ list }) => list);
}

test.each([
  { outer: optional, element: optional },
  { outer: optional, element: required },
  { outer: required, element: optional },
  { outer: required, element: required },
])("a list in three levels is recognised, and what may be NULL in it: %o", ({ outer, element }) => {
  const found = listsOf(group("l", outer, 1, "list"), group("list", repeated, 1), leaf("element", element));
  expect(found).toEqual([{ isOptional: outer === optional, isElementOptional: element === optional }]);
});

test.each<{ what: string; elements: readonly SchemaElement[] }>([
  {
    what: "a group without an annotation",
    elements: [group("l", optional, 1), group("list", repeated, 1), leaf("e", optional)],
  },
  {
    what: "a group that is repeated",
    elements: [group("l", repeated, 1, "list"), group("list", repeated, 1), leaf("e", optional)],
  },
  {
    what: "a list of structs",
    elements: [group("l", optional, 1, "list"), group("list", repeated, 2), leaf("a", optional), leaf("b", optional)],
  },
  {
    what: "a list with a column beside it",
    elements: [group("l", optional, 2, "list"), group("list", repeated, 1), leaf("a", optional), leaf("b", optional)],
  },
  { what: "a list in two levels", elements: [group("l", optional, 1, "list"), leaf("array", repeated)] },
  {
    what: "elements that are repeated",
    elements: [group("l", optional, 1, "list"), group("list", repeated, 1), leaf("e", repeated)],
  },
  {
    what: "the entries of a map",
    elements: [group("l", optional, 1, "list"), group("key_value", repeated, 1, "other"), leaf("e", optional)],
  },
  {
    what: "a list of lists",
    elements: [
      group("l", optional, 1, "list"),
      group("list", repeated, 1),
      group("element", optional, 1, "list"),
      group("list", repeated, 1),
      leaf("e", optional),
    ],
  },
])("only DuckDB knows $what", ({ elements }) => {
  expect(new Set(listsOf(...elements))).toEqual(new Set([undefined]));
});

test("a group counts as a list only if its converted type says so, which is all that DuckDB asks for", () => {
  // Of an element of the schema: optional, `l`, one child; LIST as the converted and as the logical type.
  const [start, converted] = [
    [0x35, 2, 0x18, 1, 0x6c, 0x15, 2],
    [0x15, 6],
  ];
  const annotationOf = (...bytes: readonly number[]): string =>
    readElement({ bytes: Uint8Array.from([...start, ...bytes]), at: 0 }, 12, false).annotation;
  expect(annotationOf(...converted, 0)).toBe("list");
  expect(annotationOf(...converted, 0x4c, 0x3c, 0, 0, 0)).toBe("list");
  expect(annotationOf(0x5c, 0x3c, 0, 0, 0)).toBe("other");
});
