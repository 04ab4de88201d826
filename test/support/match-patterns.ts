import { expect } from "vitest";

/** vitest runs this file before each test file, and keeps the testers: a hundred of each would look at each value. */
const areAdded = Symbol.for("infer-batch's equality testers are added");

if (!(areAdded in globalThis)) {
  Object.defineProperty(globalThis, areAdded, { value: true });
  expect.addEqualityTesters([isLikePattern, haveSameBytes]);
}

/** Where a text is expected to be like a pattern, vitest compares the two as objects without keys: anything would do. */
function isLikePattern(actual: unknown, expected: unknown): boolean | undefined {
  return expected instanceof RegExp && !(actual instanceof RegExp)
    ? typeof actual === "string" && expected.test(actual)
    : undefined;
}

/** Long vectors that are the same: vitest takes them element by element. Of others it says where they differ. */
function haveSameBytes(actual: unknown, expected: unknown): true | undefined {
  return ArrayBuffer.isView(actual) &&
    ArrayBuffer.isView(expected) &&
    actual.constructor === expected.constructor &&
    bytesOf(actual).equals(bytesOf(expected))
    ? true
    : undefined;
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);
