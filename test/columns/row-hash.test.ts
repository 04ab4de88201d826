import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { createRowHasher } from "#src/columns/row-hash.js";
import type { NamedTensor } from "#src/columns/tensor.js";
import type { Column } from "#src/columns/types.js";

/** Words i * 0x9e3779b1 + 1, as mmh3 5.2 (Python) hashes them: mmh3.hash_bytes(words, 42, False). */
const known = [
  [0, "b62c6dafba0cc895ba0cc895ba0cc895"],
  [1, "9ad8d437cee381ffcee381ffcee381ff"],
  [2, "9234c0b9c2e02cac0bce26c10bce26c1"],
  [3, "b6f24bc5802d8c76f1dc42a55fa4d4cb"],
  [4, "0f2d5591b182eed63ef6ed9c1f488e5a"],
  [5, "33443f88f8fe2d1adc049b3ac98aad86"],
  [7, "152ae9612704a779d9558072d0482c35"],
  [8, "07bec6f8b188d9f4f516fb2a8a01f40f"],
  [33, "059489c08a57f32184d46a404bb2de1d"],
] as const;

const seed = Int32Array.of(42, 42, 42, 42);

function hexOf(hash: Int32Array): string {
  return Buffer.from(hash.buffer, hash.byteOffset, hash.byteLength).toString("hex");
}

test.each(known)("the hash of %i words is the one that another implementation gives", (count, expected) => {
  const data = Int32Array.from({ length: count }, (_, index) => Math.imul(index, 0x9e3779b1) + 1);
  const hash = new Int32Array(8);
  createRowHasher(seed, false).tensors([{ name: "x", dtype: "int32", dims: [1, count], data }], 1, hash, 1);
  expect(hexOf(hash.subarray(4))).toBe(expected);
});

/** Prints the hashes of rows of so many words, one after the other. */
const shapes = [...Array.from({ length: 40 }, (_, index) => [index + 1, index]), [9000, 7], [3, 40_000]] as const;
const printHashes = `import { createRowHasher } from "#src/columns/row-hash.js";
  import { hashLoops } from "#src/columns/row-hash.js";
  const hasher = createRowHasher(Int32Array.of(42, 42, 42, 42), false);
  const all = ${JSON.stringify(shapes)}.map(([rows, words]) => {
    const data = Int32Array.from({ length: rows * words }, (_, index) => Math.imul(index, 0x9e3779b1) + 1);
    const hashes = new Int32Array(rows * 4);
    hasher.tensors([{ name: "x", dtype: "int32", dims: [rows, words], data }], rows, hashes, 0);
    return Buffer.from(hashes.buffer).toString("base64");
  });
  console.log(JSON.stringify({ inWebAssembly: hashLoops() !== undefined, all }));`;

test("rows of any width have the hashes in WebAssembly that they have in JavaScript", () => {
  const [vectors, plain] = ["--no-warnings", "--jitless"].map((flag) => {
    const told = execFileSync(process.execPath, [flag, "--input-type=module", "-e", printHashes], { encoding: "utf8" });
    return JSON.parse(told) as { readonly inWebAssembly: boolean; readonly all: readonly string[] };
  });
  expect([vectors?.inWebAssembly, plain?.inWebAssembly]).toEqual([true, false]);
  expect(vectors?.all).toEqual(plain?.all);
});

function floats(values: readonly number[], width: number): NamedTensor {
  return { name: "x", dtype: "float32", dims: [values.length / width, width], data: Float32Array.from(values) };
}

function texts(values: readonly string[]): NamedTensor {
  const bytes = new TextEncoder().encode(values.join(""));
  const offsets = new Uint32Array(values.length + 1);
  values.forEach((value, index) => (offsets[index + 1] = (offsets[index] as number) + Buffer.byteLength(value)));
  return { name: "t", dtype: "string", dims: [values.length], data: { offsets, bytes } };
}

function hashesOf(tensors: readonly NamedTensor[], rows: number): string[] {
  const hashes = new Int32Array(rows * 4);
  createRowHasher(seed, true).tensors(tensors, rows, hashes, 0);
  return Array.from({ length: rows }, (_, row) => hexOf(hashes.slice(row * 4, row * 4 + 4)));
}

test("a row has the same hash elsewhere in a batch, alone, and next to other tensors", () => {
  const values = [1, 2, 3, 4, 5, 6];
  const all = hashesOf([floats(values, 2), texts(["a", "", "bcdef"])], 3);
  expect(new Set(all).size).toBe(3);
  expect(hashesOf([floats([5, 6], 2), texts(["bcdef"])], 1)).toEqual([all[2]]);
  expect(hashesOf([floats(values, 2)], 3)[0]).toBe(hashesOf([floats([1, 2], 2)], 1)[0]);
});

test("rows whose texts are cut elsewhere have different hashes", () => {
  const [one] = hashesOf([texts(["ab"]), texts(["c"])], 1);
  const [other] = hashesOf([texts(["a"]), texts(["bc"])], 1);
  expect(one).not.toBe(other);
});

test("all NaN have one hash, and both zeros have hashes of their own", () => {
  const nan = floats([0, 0, 0, 0], 1);
  new Uint32Array((nan.data as Float32Array).buffer).set([0x7fc00000, 0xffc00001, 0x7f800001, 0x7f800000]);
  const [one, other, third, infinite] = hashesOf([nan], 4);
  expect([other, third]).toEqual([one, one]);
  expect(infinite).not.toBe(one);
  const doubles: NamedTensor = { name: "d", dtype: "float64", dims: [3], data: Float64Array.of(Number.NaN, 0, 0) };
  new Uint32Array((doubles.data as Float64Array).buffer).set([7, 0xfff80000], 4);
  const [first, zero, last] = hashesOf([doubles], 3);
  expect([first === last, first === zero]).toEqual([true, false]);
  const [plus, minus] = hashesOf([floats([0, -0], 1)], 2);
  expect(plus).not.toBe(minus);
});

test("columns of every layout change the hash of a row, and lists differ from their elements", () => {
  const hasher = createRowHasher(seed, false);
  const bytes: Column = { kind: "fixed", elementsPerValue: 1, data: Uint8Array.of(1, 2), valid: undefined };
  const pairs: Column = {
    kind: "fixed",
    elementsPerValue: 2,
    data: BigUint64Array.of(1n, 2n, 3n, 4n),
    valid: undefined,
  };
  const list = (offsets: number[]): Column => ({
    kind: "list",
    offsets: Uint32Array.from(offsets),
    child: bytes,
    valid: undefined,
  });
  const made = [[bytes], [pairs], [list([0, 1, 2])], [list([0, 2, 2])], [bytes, pairs], []].map((columns) =>
    hexOf(hasher.columns(columns, 2, new Int32Array(8))),
  );
  expect(new Set(made).size).toBe(made.length);
});
