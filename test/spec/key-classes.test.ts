import { expect, test } from "vitest";
import { specJsonSchema } from "#src/spec/job-spec.js";
import { classOfKey } from "#src/spec/key-classes.js";

interface Node {
  readonly properties?: Readonly<Record<string, Node>>;
}

function keysBelow({ properties = {} }: Node, path: readonly string[] = []): string[] {
  return Object.entries(properties).flatMap(([key, child]) =>
    child.properties === undefined ? [[...path, key].join(".")] : keysBelow(child, [...path, key]),
  );
}

test("each key of the spec has a class: plan, attempt or verdict", () => {
  const keys = keysBelow(specJsonSchema());
  expect(keys).toContain("checks.on_fail");
  expect(keys.filter((key) => classOfKey(key) === undefined)).toEqual([]);
});

test("a key that is in no list of classes has no class", () => {
  expect(["input.new_key", "checks.new_key", "new_key"].map(classOfKey)).toEqual([undefined, undefined, undefined]);
});
