import { execFileSync } from "node:child_process";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { profileInLoops } from "#src/checks/profiles/number-loops.js";
import { blockValues, type NextNumbers, type ProfileLimits } from "#src/checks/profiles/number-profile.js";
import { profilePlainly } from "#src/checks/profiles/profile-numbers.js";
import { randomOf } from "../../support/random.js";

const full: ProfileLimits = { bins: 1024, values: 256, nameBytes: 16_384 };
const tight: ProfileLimits = { bins: 12, values: 8, nameBytes: 200 };

/** Blocks of at most `size` values. */
function blocksOf(values: readonly number[], size: number): NextNumbers {
  let at = 0;
  return (target) => {
    const block = values.slice(at, at + Math.min(size, blockValues));
    target.set(block);
    at += block.length;
    return block.length;
  };
}

const special = [0, -0, 5e-324, -2e-308, 1e-200, 1e200, -1e200, Number.MAX_VALUE, -Number.MAX_VALUE];
const notFinite = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
const numbers = fc.oneof(
  { weight: 4, arbitrary: fc.double() },
  { weight: 2, arbitrary: fc.float() },
  { weight: 2, arbitrary: fc.integer({ min: -5, max: 5 }) },
  { weight: 1, arbitrary: fc.constantFrom(...special, ...notFinite) },
);

test("the profile of any numbers is that of one after the other", () => {
  fc.assert(
    fc.property(
      fc.array(numbers, { maxLength: 600, size: "max" }),
      fc.integer({ min: 1, max: 300 }),
      fc.constantFrom(full, tight),
      (values, size, limits) => {
        expect(profileInLoops(blocksOf(values, size), limits)).toEqual(profilePlainly(blocksOf(values, size), limits));
      },
    ),
    { numRuns: 500 },
  );
});

const random = randomOf(7);
const drawn = (count: number, draw: () => number): number[] => Array.from({ length: count }, draw);
const score = (): number => Math.fround(1 / (1 + Math.exp(6 * random() - 2)));

test.each<[string, number[]]>([
  ["scores", drawn(50_000, score)],
  ["numbers of all sizes", drawn(50_000, () => (random() - 0.5) * 10 ** (random() * 600 - 300))],
  ["special numbers", [...drawn(5000, score), ...special, ...special]],
  ["256 labels", drawn(20_000, () => Math.floor(random() * 256))],
  ["257 labels", drawn(20_000, () => Math.floor(random() * 257))],
  ["labels, then scores", [...drawn(9000, () => Math.floor(random() * 3) - 1), ...drawn(9000, score)]],
  ["labels with NaN among them", drawn(9000, () => (random() < 0.5 ? Number.NaN : Math.floor(random() * 3)))],
  ["numbers that are not finite", drawn(5000, () => notFinite[Math.floor(random() * 3)] as number)],
  ["the largest numbers, whose squares are infinite", drawn(5000, () => 1e300 * (1 + random()))],
])("the profile of blocks of %s is that of one after the other", (_, values) => {
  const plain = profilePlainly(blocksOf(values, blockValues), full);
  expect(profileInLoops(blocksOf(values, blockValues), full)).toEqual(plain);
});

test("a profile is made where there is no WebAssembly", () => {
  const code = `import { profileNumbers } from "#src/checks/profiles/profile-numbers.js";
    let left = 3;
    const next = (target) => { target[0] = left; left -= 1; return left < 0 ? 0 : 1; };
    const { finite, min, max, sum } = profileNumbers(next, { bins: 4, values: 4, nameBytes: 100 });
    console.log(typeof WebAssembly, finite, min, max, sum === 6n << 1074n);`;
  const told = execFileSync(process.execPath, ["--jitless", "--input-type=module", "-e", code], { encoding: "utf8" });
  expect(told).toBe("undefined 3 1 3 true\n");
});
