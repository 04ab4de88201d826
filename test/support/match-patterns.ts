import { expect } from "vitest";

// Where a text is expected to be like a pattern, vitest compares the two as objects without keys: anything would do.
expect.addEqualityTesters([
  (actual, expected) =>
    expected instanceof RegExp && !(actual instanceof RegExp)
      ? typeof actual === "string" && expected.test(actual)
      : undefined,
]);
