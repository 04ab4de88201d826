import { beforeAll, describe, expect, test } from "vitest";
import { counted } from "#src/checks/features/feature-loops.js";
import { type MatrixCounts, countOf, measureMatrix } from "#src/checks/features/measure-matrix.js";
import { createExactAdder } from "#src/checks/profiles/exact-sum.js";
import { releaseMemory, takeMemory } from "#src/columnar/memory/vectors.js";
import type { Matrix } from "#src/columnar/types.js";
import { randomOf } from "../../support/random.js";

type Draw = () => number;

/** Numbers that each way of adding up must take: near each other, far apart, special, and too far apart for float64. */
const kinds: readonly ((random: Draw) => number)[] = [
  (random) => 40 + 80 * random(),
  (random) => (random() - 0.5) * 10 ** (random() * 4),
  (random) => (random() - 0.5) * 10 ** (random() * 76 - 38),
  (random) => (1 + random()) * 2 ** -Math.floor(random() * 22),
  (random) => (1 + random()) * 2 ** -Math.floor(random() * 66),
  (random) => (1 + random()) * 2 ** -Math.floor(random() * 98),
  (random) => (random() < 0.3 ? Number.NaN : random()),
  (random) => [0, -0, -1][Math.floor(random() * 3)] as number,
  (random) => (random() < 0.5 ? -0 : 0),
  (random) => (random() < 0.5 ? 2 ** -149 : -(2 ** -126) * random()),
  (random) => (random() < 0.001 ? Number.NEGATIVE_INFINITY : random()),
  (random) => (random() < 0.5 ? Number.POSITIVE_INFINITY : Number.NaN),
  () => Number.NaN,
  () => Number.POSITIVE_INFINITY,
  (random) => (random() - 0.5) * 10 ** (random() * 20 - 318),
  (random) => random() * 10 ** -300,
  (random) => (random() - 0.5) * 1e300,
  (random) => (random() < 0.5 ? 3.402_823_466_385_288_6e38 : -1e-30),
];

interface Counts {
  readonly nulls: number;
  readonly nan: number;
  readonly positiveInfinite: number;
  readonly negativeInfinite: number;
  readonly finite: number;
  readonly min: number;
  readonly max: number;
  readonly sum: bigint;
}

/** What is known of rows [from, to) of a column, one value after the other. */
function countPlainly({ data, valid, width }: Matrix, place: number, from: number, to: number): Counts {
  const all = Array.from({ length: to - from }, (_, row) => (from + row) * width + place);
  const values = all.filter((at) => valid?.[at] !== 0).map((at) => Number(data[at]));
  const finite = values.filter((value) => Number.isFinite(value));
  return {
    nulls: all.length - values.length,
    nan: values.filter((value) => Number.isNaN(value)).length,
    positiveInfinite: values.filter((value) => value === Number.POSITIVE_INFINITY).length,
    negativeInfinite: values.filter((value) => value === Number.NEGATIVE_INFINITY).length,
    finite: finite.length,
    min: finite.reduce((one, other) => Math.min(one, other + 0), Number.POSITIVE_INFINITY),
    max: finite.reduce((one, other) => Math.max(one, other + 0), Number.NEGATIVE_INFINITY),
    sum: finite.reduce((sum, value) => sum + unitsOf(value), 0n),
  };
}

const bits = new DataView(new ArrayBuffer(8));

/** A float64 in units of 2^-1074; 0 if it is subnormal. */
function unitsOf(value: number): bigint {
  bits.setFloat64(0, value);
  const word = bits.getBigUint64(0);
  const exponent = (word >> 52n) & 0x7ffn;
  const magnitude = exponent === 0n ? 0n : ((word & 0xfffffffffffffn) | 0x10000000000000n) << (exponent - 1n);
  return value < 0 ? -magnitude : magnitude;
}

function countsOf(measured: MatrixCounts, column: number): Counts {
  const columns = measured.counts.length / counted;
  const count = (of: keyof typeof countOf): number => measured.counts[column * counted + countOf[of]] as number;
  const adder = createExactAdder();
  for (let at = column; at < measured.sums.length; at += columns) {
    adder.add(measured.sums[at] as number);
  }
  const others = measured.others.filter((other) => other.column === column);
  return {
    nulls: count("nulls"),
    nan: count("nan"),
    positiveInfinite: count("positiveInfinite"),
    negativeInfinite: count("negativeInfinite"),
    finite: count("finite"),
    min: count("min"),
    max: count("max"),
    sum: adder.finish() + others.reduce((sum, other) => sum + other.sum, 0n),
  };
}

const elements = [Float32Array, Float64Array, BigInt64Array, Int32Array] as const;

/** A matrix with columns of random kinds, mostly of float32; in the memory of the loops or elsewhere. */
function randomMatrix(random: Draw): { readonly matrix: Matrix; readonly memory: readonly Uint8Array<ArrayBuffer>[] } {
  const width = 1 + Math.floor(random() * 11);
  const rows = 1 + Math.floor(random() * (random() < 0.3 ? 5000 : 200));
  const element = elements[random() < 0.7 ? 0 : Math.floor(random() * elements.length)] as (typeof elements)[number];
  const isHere = random() < 0.5;
  const memory = isHere ? [takeMemory(rows * width * element.BYTES_PER_ELEMENT)] : [];
  const [piece] = memory;
  const data = piece ? new element(piece.buffer, piece.byteOffset, rows * width) : new element(rows * width);
  const columns = Array.from({ length: width }, () => kinds[Math.floor(random() * kinds.length)] as (typeof kinds)[0]);
  for (let at = 0; at < data.length; at += 1) {
    const value = (columns[at % width] as (typeof kinds)[0])(random);
    const whole = Number.isFinite(value) ? Math.trunc(value) % 2 ** 31 : 0;
    data[at] = (data instanceof BigInt64Array ? BigInt.asIntN(64, BigInt(whole) << 31n) : value) as never;
  }
  const hasNulls = random() < 0.2;
  const valid = hasNulls ? Uint8Array.from({ length: data.length }, () => (random() < 0.2 ? 0 : 1)) : undefined;
  return { matrix: { kind: "matrix", width, data, valid }, memory };
}

describe("a matrix is measured", () => {
  beforeAll(() => releaseMemory([takeMemory(1)]));

  test("a matrix is measured with the same counts and sums as a loop over single values", () => {
    const random = randomOf(41);
    for (let round = 0; round < 300; round += 1) {
      const { matrix, memory } = randomMatrix(random);
      const rows = matrix.data.length / matrix.width;
      const from = random() < 0.5 ? 0 : Math.floor(random() * rows);
      const to = random() < 0.5 ? rows : from + Math.floor(random() * (rows - from + 1));
      const all = Array.from({ length: matrix.width }, (_, place) => place);
      const places = random() < 0.6 ? all : all.filter(() => random() < 0.5);
      const measured = measureMatrix(matrix, places, { from, to });
      for (const [column, place] of places.entries()) {
        const about = `round ${round}, column ${place} of ${matrix.width}, rows ${from} to ${to}`;
        expect(countsOf(measured, column), about).toEqual(countPlainly(matrix, place, from, to));
      }
      releaseMemory(memory);
    }
  });

  test("a matrix is measured exactly even if its blocks of rows differ too much for three numbers to hold their sum", () => {
    const random = randomOf(42);
    const [rows, width] = [6 * 2048, 5];
    const memory = takeMemory(rows * width * Float32Array.BYTES_PER_ELEMENT);
    const data = new Float32Array(memory.buffer, memory.byteOffset, rows * width).map((_, at) => {
      const block = Math.floor(at / width / 2048);
      return (1 + random()) * 2 ** (120 - 45 * (at % width === 2 ? 1 : block));
    });
    const floats = new Float32Array(memory.buffer, memory.byteOffset, rows * width);
    floats.set(data);
    const matrix: Matrix = { kind: "matrix", width, data: floats, valid: undefined };
    const places = Array.from({ length: width }, (_, place) => place);
    const measured = measureMatrix(matrix, places, { from: 0, to: rows });
    for (const place of places) {
      expect(countsOf(measured, place)).toEqual(countPlainly(matrix, place, 0, rows));
    }
    expect(measured.others.map(({ column }) => column)).not.toContain(2);
    releaseMemory([memory]);
  });
});
