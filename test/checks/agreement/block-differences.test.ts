import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { BlockComparer, BlockRows } from "#src/checks/agreement/block-comparer.js";
import { comparerInLoops } from "#src/checks/agreement/difference-loops.js";
import { blockValues } from "#src/checks/profiles/number-profile.js";
import { plainComparer } from "#src/checks/agreement/plain-differences.js";

const numbers = fc.oneof(
  { weight: 4, arbitrary: fc.double({ min: -2, max: 2, noNaN: true }) },
  fc.double(),
  fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5, 1),
);
const pairs = fc.array(fc.tuple(numbers, numbers), { minLength: 1, maxLength: 60 });
const rowsFrom = fc.constantFrom(0, 1, 2 ** 31 - 5, 2 ** 32 - 7, 2 ** 33 + 3, 2 ** 45);

function found(comparer: BlockComparer, values: readonly (readonly [number, number])[], about: BlockRows): object {
  comparer.one.set(values.map(([one]) => one));
  comparer.other.set(values.map(([, other]) => other));
  const { finite, beyond, different, sampled } = comparer.compare(values.length, about);
  return { finite: [...finite], beyond, different: [...different], sampled: [...sampled] };
}

test("WebAssembly finds the differences that JavaScript finds, for consecutive and for scattered rows", () => {
  const [loops, plain] = [comparerInLoops(), plainComparer()];
  if (loops === undefined) {
    throw new Error("there is no WebAssembly here");
  }
  let sampled = 0;
  const about = fc.record({
    first: rowsFrom,
    step: fc.constantFrom(1, 3),
    tolerance: fc.constantFrom(0, 0.01, 0.5, 3),
    least: fc.constantFrom(0, 0.25, 1, Number.POSITIVE_INFINITY),
    level: fc.constantFrom(0, 1, 3, 32),
  });
  fc.assert(
    fc.property(pairs, about, (values, { first, step, ...rest }) => {
      // The block begins at the third row.
      const rowNumbers =
        step === 1
          ? { first: first - 2, length: values.length + 2 }
          : Float64Array.from({ length: values.length + 2 }, (_row, index) => first + step * (index - 2));
      const asked = { ...rest, rowNumbers, from: 2 };
      const expected = found(plain, values, asked) as { readonly sampled: readonly number[] };
      expect(found(loops, values, asked)).toEqual(expected);
      sampled += rest.level === 3 ? expected.sampled.length : 0;
    }),
    { numRuns: 500 },
  );
  expect(sampled).toBeGreaterThan(0);
});

test.each([blockValues - 1, blockValues])(
  "a block of %i rows that all differ and are in the sample is compared",
  (count) => {
    const values = Array.from({ length: count }, (_row, index) => [index, -1] as const);
    const about = { rowNumbers: { first: 0, length: count }, from: 0, tolerance: 0, least: 0, level: 0 };
    const comparer = comparerInLoops();
    expect(comparer && found(comparer, values, about)).toEqual(found(plainComparer(), values, about));
  },
);
