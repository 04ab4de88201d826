import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { areFinite, createMemoryPieces, packFour, releaseMemory, takeMemory } from "#src/columns/loops/vectors.js";
import { allocate, bytesPerElement, type Values, viewOf } from "#src/columns/values.js";
import { randomOf } from "../../support/random.js";
import { findZeros } from "#src/columns/loops/page-loops.js";
import { readRuns } from "#src/formats/parquet/pages/runs.js";
import { damagedBits } from "../../support/parquet-runs.js";

/** Where vectors reach them; `lead`: not aligned. */
function numbersOf(kind: "float32" | "float64", values: readonly number[], lead = 0): Float32Array<ArrayBuffer> {
  const bytes = bytesPerElement(kind);
  const piece = takeMemory((lead + values.length) * bytes);
  const numbers = viewOf(
    kind,
    piece.buffer,
    piece.byteOffset + lead * bytes,
    values.length,
  ) as Float32Array<ArrayBuffer>;
  numbers.set(values);
  return numbers;
}

function floatsOf(values: readonly number[], lead = 0): Float32Array<ArrayBuffer> {
  return numbersOf("float32", values, lead);
}

const bad = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
/** The largest, the smallest, those without a leading one, and zeros. */
const extremes = [3.402_823_466_385_288_6e38, -3.402_823_466_385_288_6e38, 1e-45, -1e-45, 1.17e-38, 0, -0];

describe("floats are checked for values that are not finite", () => {
  test("a float that is not finite is found at each position of arrays of any length", () => {
    for (let length = 0; length <= 40; length += 1) {
      for (const lead of [0, 1, 3]) {
        const values = floatsOf(
          Array.from({ length }, (_, index) => extremes[index % extremes.length] ?? 0),
          lead,
        );
        expect(areFinite(values)).toBe(true);
        for (let index = 0; index < length; index += 1) {
          const before = values[index] as number;
          values[index] = bad[(index + length) % bad.length] as number;
          expect(areFinite(values), `${values[index]} at ${index} of ${length}`).toBe(false);
          values[index] = before;
        }
      }
    }
  });

  test("a float that is not finite is ignored beyond the end of the array", () => {
    const values = floatsOf([Number.NaN, ...Array.from({ length: 20 }, () => 1), Number.NaN]);
    expect(areFinite(values.subarray(1, 21))).toBe(true);
  });

  test("each bit pattern of NaN and infinity counts as not finite", () => {
    const values = floatsOf([1, 1, 1, 1, 1]);
    const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
    for (const one of [0x7f80_0001, 0x7fc0_0000, 0xffff_ffff, 0x7f80_0000, 0xff80_0000]) {
      bits[4] = one;
      expect(areFinite(values), one.toString(16)).toBe(false);
    }
  });
});

describe.for(["float32", "float64"] as const)("four columns of %s are put side by side", (kind) => {
  type Column = Float32Array<ArrayBuffer>;
  type Four = [Column, Column, Column, Column];
  const columnOf = (values: readonly number[], lead = 0): Float32Array<ArrayBuffer> => numbersOf(kind, values, lead);
  const random = randomOf(7);
  const whole = (below: number): number => Math.floor(random() * below);

  test("vector loops find the same values that are not finite as a loop one by one, and read nothing outside", () => {
    for (let round = 0; round < 300; round += 1) {
      const [rows, width, from] = [whole(23), 4 + whole(9), whole(5)];
      const index = whole(width - 3);
      const column = (): Float32Array<ArrayBuffer> =>
        columnOf(
          Array.from({ length: from + rows + whole(3) }, () => (random() * 2 - 1) * 10 ** (whole(90) - 52)),
          whole(3),
        );
      const [a, b, c, d] = [column(), column(), column(), column()];
      const target = floatsOf(Array.from({ length: (rows + 2) * width }, () => -7));
      const expected = target.slice();
      for (let row = 0; row < rows; row += 1) {
        expected.set(
          [a, b, c, d].map((one) => one[from + row] as number),
          (row + 1) * width + index,
        );
      }
      expect(packFour(target, width + index, width, { a, b, c, d, from, to: from + rows })).toBe(true);
      expect(target).toEqual(expected);
    }
  });

  test("each value is checked", () => {
    for (const rows of [1, 4, 7]) {
      const columns = Array.from({ length: 4 }, () => columnOf(Array.from({ length: rows + 2 }, () => 1)));
      const [a, b, c, d] = columns as Four;
      const target = floatsOf(Array.from({ length: rows * 4 }, () => 0));
      const pack = (): boolean | undefined => packFour(target, 0, 4, { a, b, c, d, from: 1, to: rows + 1 });
      for (const column of columns) {
        for (let row = 0; row < rows + 2; row += 1) {
          column[row] = bad[row % 3] as number;
          expect(pack(), `row ${row - 1} of ${rows}`).toBe(row === 0 || row === rows + 1);
          column[row] = 1;
        }
      }
    }
  });

  test("columns are not packed from or to positions beyond the end of an array", () => {
    const column = columnOf([1, 2, 3]);
    const four = { a: column, b: column, c: column, d: column };
    const target = floatsOf(Array.from({ length: 12 }, () => 0));
    expect(() => packFour(target, 0, 4, { ...four, c: column.subarray(0, 2), from: 0, to: 3 })).toThrow(RangeError);
    expect(() => packFour(target, 1, 4, { ...four, from: 0, to: 3 })).toThrow(RangeError);
    expect(() => packFour(target, 0, 5, { ...four, from: 0, to: 3 })).toThrow(RangeError);
    expect(() => packFour(target, 0, 4, { ...four, from: -1, to: 2 })).toThrow(RangeError);
    expect(packFour(target, 0, 4, { ...four, from: 0, to: 3 })).toBe(true);
  });
});

test("a double that is too large for a float is found", () => {
  const target = floatsOf([0, 0, 0, 0]);
  const [a, d] = [numbersOf("float64", [3.4e38]), numbersOf("float64", [3.5e38])];
  expect(packFour(target, 0, 4, { a, b: a, c: a, d: a, from: 0, to: 1 })).toBe(true);
  expect(packFour(target, 0, 4, { a, b: a, c: a, d, from: 0, to: 1 })).toBe(false);
});

type AnyFour = [Values, Values, Values, Values];

/** Rows of four columns, packed. */
function packed(
  [a, b, c, d]: AnyFour,
  range = { from: 0, to: a.length },
): { isPacked: boolean | undefined; floats: number[] } {
  const target = floatsOf(Array.from({ length: (range.to - range.from) * 4 }, () => 0));
  return { isPacked: packFour(target, 0, 4, { a, b, c, d, ...range }), floats: [...target] };
}

const rows = 11;
const ones = floatsOf(Array.from({ length: rows }, () => 1));

test.each(["float32", "float64", "int8", "uint8", "int16", "uint16"] as const)(
  "%s columns in other memory are packed",
  (kind) => {
    const column = allocate(kind, rows) as Float32Array<ArrayBuffer>;
    column.set(Array.from({ length: rows }, (_, row) => row * 3));
    for (let place = 0; place < 4; place += 1) {
      const four: AnyFour = [ones, ones, ones, ones];
      four[place] = column;
      const { isPacked, floats } = packed(four, { from: 1, to: rows });
      expect([isPacked, floats.filter((_, index) => index % 4 === place)]).toEqual([true, [...column.subarray(1)]]);
    }
  },
);

const held = 2 ** 24;
const wholes = [0, 1, -1, 77, -held, held - 1, 5, -6, 7, 8, 9];

test.each(["int32", "int64"] as const)("columns of %s are packed if each value is exact as a float", (kind) => {
  const piece = takeMemory(wholes.length * bytesPerElement(kind));
  const column = viewOf(kind, piece.buffer, piece.byteOffset, wholes.length);
  const set = (row: number, value: bigint): void => {
    (column as Int32Array)[row] = (kind === "int64" ? value : Number(value)) as number;
  };
  for (const [row, value] of wholes.entries()) {
    set(row, BigInt(value));
  }
  for (let from = 0; from < 4; from += 1) {
    const { isPacked, floats } = packed([ones, column, ones, ones], { from, to: rows });
    expect([isPacked, floats.filter((_, index) => index % 4 === 1)]).toEqual([true, wholes.slice(from)]);
  }
  const most = kind === "int64" ? 2n ** 63n : 2n ** 31n;
  for (const odd of [BigInt(held) + 1n, -BigInt(held) - 1n, most - 1n, -most, most / 2n]) {
    for (let row = 0; row < rows; row += 1) {
      set(row, odd);
      expect(packed([ones, ones, ones, column]).isPacked, `${odd} at ${row}`).toBe(false);
      set(row, BigInt(wholes[row] as number));
    }
  }
  expect(packed([ones, column.slice(), ones, ones]).isPacked).toBeUndefined();
});

test.each(["uint32", "uint64"] as const)(
  "columns of %s are not packed, because large values look like negative numbers",
  (kind) => {
    const piece = takeMemory(rows * bytesPerElement(kind));
    expect(packed([ones, ones, viewOf(kind, piece.buffer, piece.byteOffset, rows), ones]).isPacked).toBeUndefined();
  },
);

test("four columns of different types are packed side by side", () => {
  const [floats, doubles] = [floatsOf([1, 2]), numbersOf("float64", [3, 4])];
  expect(packed([floats, doubles, Int8Array.of(5, 6), floats.slice()])).toEqual({
    isPacked: true,
    floats: [1, 3, 5, 1, 2, 4, 6, 2],
  });
});

test("memory outside WebAssembly is left to other loops", () => {
  const elsewhere = new Float32Array(8);
  const here = floatsOf([1, 2, 3, 4, 5, 6, 7, 8]);
  expect(areFinite(elsewhere)).toBeUndefined();
  expect(packFour(elsewhere, 0, 4, { a: here, b: here, c: here, d: here, from: 0, to: 1 })).toBeUndefined();
});

test("memory of more than loops are for, or than there is, is ordinary", () => {
  const large = takeMemory(17 * 1024 * 1024);
  expect(large.byteOffset).toBe(0);
  expect(large.buffer.byteLength).toBe(large.length);
  releaseMemory([large]);
  const pieces = Array.from({ length: 40 }, () => takeMemory(16 * 1024 * 1024));
  const last = pieces.at(-1) as Uint8Array<ArrayBuffer>;
  expect(last.length).toBe(16 * 1024 * 1024);
  expect(areFinite(new Float32Array(last.buffer, last.byteOffset, 4))).toBeUndefined();
  releaseMemory(pieces);
  expect(areFinite(floatsOf([1, 2]))).toBe(true);
});

test.each([
  ["--jitless", ""],
  ["--trace-uncaught", "doWithoutVectors();"], // a flag that changes nothing
])("memory is ordinary where there are no vectors: %s %s", (flag, first) => {
  const code = `import { areFinite, doWithoutVectors, takeMemory, usedMemoryBytes } from "#src/columns/loops/vectors.js";
      ${first} const piece = takeMemory(8);
      console.log(piece.length, areFinite(new Float32Array(piece.buffer, 0, 2)), usedMemoryBytes());`;
  const told = execFileSync(process.execPath, [flag, "--input-type=module", "-e", code], { encoding: "utf8" });
  expect(told).toBe("8 undefined 0\n");
});

const sizeBytes = 64 * 1024;

test("pieces of memory never overlap, and released ones can be taken again", () => {
  const random = randomOf(11);
  const pieces = createMemoryPieces(new ArrayBuffer(sizeBytes));
  const taken: { readonly piece: Uint8Array<ArrayBuffer>; readonly mark: number }[] = [];
  let refused = 0;
  for (let step = 0; step < 5000; step += 1) {
    if (taken.length > 0 && random() < 0.45) {
      const [gone] = taken.splice(Math.floor(random() * taken.length), 1);
      expect(gone?.piece.every((byte) => byte === gone.mark)).toBe(true);
      pieces.release(gone?.piece as Uint8Array<ArrayBuffer>);
      continue;
    }
    const bytes = Math.floor(random() ** 3 * 16_000);
    const piece = pieces.take(bytes);
    if (piece === undefined) {
      refused += 1;
      continue;
    }
    expect(piece.length).toBe(bytes);
    expect(piece.byteOffset % 64).toBe(0);
    const mark = step % 251;
    taken.push({ piece: piece.fill(mark), mark });
  }
  expect(refused).toBeGreaterThan(100);
  for (const { piece, mark } of taken) {
    expect(piece.every((byte) => byte === mark)).toBe(true);
    pieces.release(piece);
  }
  expect(pieces.usedBytes).toBe(0);
  expect(pieces.take(sizeBytes)?.length).toBe(sizeBytes);
});

test("columns whose pages grow find room, where smaller ones were", () => {
  const pieces = createMemoryPieces(new ArrayBuffer(sizeBytes));
  let rooms = Array.from({ length: 20 }, () => pieces.take(64) as Uint8Array<ArrayBuffer>);
  for (let bytes = 64; bytes <= sizeBytes / 50; bytes += 50) {
    rooms = rooms.map((room) => {
      pieces.release(room);
      return pieces.take(bytes) as Uint8Array<ArrayBuffer>;
    });
    expect(rooms.every((room) => room.length === bytes)).toBe(true);
  }
});

test("a piece comes back once, and whole", () => {
  const pieces = createMemoryPieces(new ArrayBuffer(sizeBytes));
  const piece = pieces.take(200) as Uint8Array<ArrayBuffer>;
  expect(() => {
    pieces.release(piece.subarray(64));
  }).toThrow("it is not in use");
  pieces.release(piece);
  expect(() => {
    pieces.release(piece);
  }).toThrow("it is not in use");
  expect(() => {
    pieces.release(new Uint8Array(200));
  }).toThrow("it is not in use");
});

const random = randomOf(12);
const below = (limit: number): number => Math.floor(random() * limit);

/** The same, one number after the other; undefined: the runs are refused. */
function zerosOf(bytes: Uint8Array, count: number): number[] | undefined {
  const bits = new Uint8Array(count);
  try {
    readRuns(bytes, { at: 0, end: bytes.length, width: 1 }, bits, count);
  } catch {
    return undefined;
  }
  return [...bits].flatMap((bit, at) => (bit === 0 ? [at] : []));
}

/** What the loops find; undefined: they refuse the runs. */
function found<T>(find: () => T): T | undefined {
  try {
    return find();
  } catch (error) {
    expect(error).toBeInstanceOf(RangeError);
    return undefined;
  }
}

/** The places of zeros, where there is room for so many. */
function zerosHere(
  bytes: Uint8Array,
  { count, room }: { readonly count: number; readonly room: number },
): number[] | undefined {
  const { buffer, byteOffset } = takeMemory((room + 1) * 4).fill(9);
  const target = new Uint32Array(buffer, byteOffset, room + 1);
  const zeros = found(() => findZeros(bytes, target.subarray(0, room), count));
  expect(target[room]).toBe(0x09090909);
  return zeros === undefined ? undefined : [...target.subarray(0, zeros)];
}

test("the zeros among numbers of one bit are found as one after the other, or refused by both", () => {
  let refused = 0;
  for (let round = 0; round < 3000; round += 1) {
    const { bytes, count } = damagedBits(random);
    const cut = takeMemory(bytes.length).subarray(0, random() < 0.1 ? below(bytes.length) : bytes.length);
    cut.set(bytes.slice(0, cut.length));
    const expected = zerosOf(cut, count);
    expect(zerosHere(cut, { count, room: expected?.length ?? count })).toEqual(expected);
    expect(found(() => findZeros(cut, undefined, count))).toBe(expected?.length);
    refused += expected === undefined ? 1 : 0;
    if (expected !== undefined) {
      expect(zerosHere(cut, { count, room: expected.length + 1 })).toBeUndefined();
      expect(expected.length > 0 ? zerosHere(cut, { count, room: expected.length - 1 }) : undefined).toBeUndefined();
    }
  }
  expect(refused).toBeGreaterThan(200);
});

test("zeros are refused where loops do not reach the runs or the target", () => {
  const bytes = takeMemory(2);
  bytes.set([16, 0]);
  expect(findZeros(bytes, undefined, 8)).toBe(8);
  expect(() => findZeros(bytes.slice(), undefined, 8)).toThrow(RangeError);
  expect(() => findZeros(bytes, new Uint32Array(8), 8)).toThrow(RangeError);
});
