import { describe, expect, test } from "vitest";
import { releaseMemory, takeMemory } from "#src/columns/loops/vectors.js";
import { unpackSnappyHere } from "#src/columns/loops/page-loops.js";
import { unpackSnappy } from "#src/formats/codecs.js";
import { varint } from "../../support/parquet-runs.js";
import { randomOf } from "../../support/random.js";

const text = (value: string): number[] => [...Buffer.from(value, "latin1")];

const bytesOf = (value: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => Math.floor(value / 256 ** index) % 256);

/** `extra`: bytes that say the length; default: none where it fits the tag. */
function literal(bytes: readonly number[], extra = bytes.length <= 60 ? 0 : 2): number[] {
  const tag = extra === 0 ? (bytes.length - 1) << 2 : (59 + extra) << 2;
  return [tag, ...bytesOf(bytes.length - 1, extra), ...bytes];
}

function match(distance: number, length: number, bytes: 1 | 2 | 4): number[] {
  return bytes === 1
    ? [1 | ((length - 4) << 2) | ((distance >> 8) << 5), distance & 255]
    : [(bytes === 2 ? 2 : 3) | ((length - 1) << 2), ...bytesOf(distance, bytes)];
}

type Take = (bytes: number) => Uint8Array<ArrayBuffer>;
const elsewhere: Take = (bytes) => new Uint8Array(bytes);

/** What comes of a block, into the middle of other memory, which must stay as it is: by loops, and without them. */
function unpack(block: readonly number[], size: number): string {
  const here = tryUnpack(block, size, takeMemory);
  expect(here).toEqual(tryUnpack(block, size, elsewhere));
  if (here.error !== undefined) {
    throw here.error as Error;
  }
  return here.text;
}

function tryUnpack(block: readonly number[], size: number, take: Take): { text: string; error: unknown } {
  const around = take(size + 64).fill(0xee);
  const target = around.subarray(32, 32 + size);
  const packed = take(block.length);
  packed.set(block);
  let error: unknown;
  try {
    unpackSnappy(packed, target);
  } catch (thrown) {
    error = thrown;
  }
  const outside = [...around.subarray(0, 32), ...around.subarray(32 + size)];
  expect(outside.every((byte) => byte === 0xee)).toBe(true);
  const made = error === undefined ? Buffer.from(target).toString("latin1") : "";
  releaseMemory(take === takeMemory ? [around, packed] : []);
  return { text: made, error };
}

describe("a block is unpacked that has", () => {
  test("an empty block is unpacked", () => {
    expect(unpack([0], 0)).toBe("");
  });

  test.each([1, 2, 3, 4])("a literal whose length takes %i bytes", (extra) => {
    expect(unpack([5, ...literal(text("hello"), extra)], 5)).toBe("hello");
  });

  test.each([1, 2, 4] as const)("a match whose distance takes %i bytes", (bytes) => {
    expect(unpack([9, ...literal(text("abcde")), ...match(5, 4, bytes)], 9)).toBe("abcdeabcd");
  });

  test.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33])(
    "a match that repeats %i bytes over and over",
    (distance) => {
      const seed = text("0123456789abcdefghijklmnopqrstuvwxyz").slice(0, distance);
      const whole = Buffer.from(seed)
        .toString()
        .repeat(70)
        .slice(0, distance + 64);
      expect(unpack([...varint(whole.length), ...literal(seed), ...match(distance, 64, 2)], whole.length)).toBe(whole);
      for (let length = 1; length <= 64; length += 1) {
        const more = text("x".repeat(80));
        const block = [...literal(seed), ...match(distance, length, 2), ...literal(more)];
        const expected = whole.slice(0, distance + length) + "x".repeat(80);
        expect(unpack([...varint(expected.length), ...block], expected.length)).toBe(expected);
      }
    },
  );

  test("a match from 65,536 bytes before, and further", () => {
    const far = Array.from({ length: 70_000 }, (_, index) => (index * 7 + (index >> 8)) & 255);
    const block = [...varint(70_010), ...literal(far, 3), ...match(65_536, 5, 4), ...match(70_005, 5, 4)];
    const whole = [...far, ...far.slice(70_000 - 65_536, 70_005 - 65_536), ...far.slice(0, 5)];
    expect(unpack(block, 70_010)).toBe(Buffer.from(whole).toString("latin1"));
  });

  test("a block in WebAssembly memory is unpacked by the WebAssembly loops", () => {
    const [packed, target] = [takeMemory(6), takeMemory(5)];
    packed.set(literal(text("hello")));
    expect(unpackSnappyHere(packed, target)).toBe(true);
    expect(Buffer.from(target).toString()).toBe("hello");
    expect(unpackSnappyHere(packed.slice(), target)).toBe(false);
    expect(unpackSnappyHere(packed, target.slice())).toBe(false);
    expect(unpackSnappyHere(packed.subarray(0, 5), target)).toBe(false);
  });

  test("a block of random literals and matches is unpacked", () => {
    const random = randomOf(3);
    const below = (limit: number): number => Math.floor(random() * limit);
    for (let round = 0; round < 300; round += 1) {
      const whole: number[] = [];
      const elements: number[] = [];
      const near = random() < 0.5 ? 20 : 2047;
      for (let count = below(40); count >= 0; count -= 1) {
        if (whole.length === 0 || random() < 0.4) {
          const bytes = Array.from({ length: 1 + below(90) }, () => below(256));
          elements.push(...literal(bytes));
          whole.push(...bytes);
        } else {
          const distance = 1 + below(Math.min(whole.length, near));
          const bytes = ([1, 2, 4] as const)[below(3)] ?? 1;
          const length = bytes === 1 ? 4 + below(8) : 1 + below(64);
          elements.push(...match(distance, length, bytes));
          for (let index = 0; index < length; index += 1) {
            whole.push(whole[whole.length - distance] ?? 0);
          }
        }
      }
      const found = unpack([...varint(whole.length), ...elements], whole.length);
      expect(found === Buffer.from(whole).toString("latin1"), `round ${round}`).toBe(true);
    }
  });
});

describe("a block is refused", () => {
  const four = literal(text("abcd"));
  test.each<{ what: string; block: readonly number[]; size: number }>([
    { what: "without anything", block: [], size: 0 },
    { what: "whose length is missing", block: [], size: 4 },
    { what: "whose length does not end", block: [0x80, 0x80], size: 4 },
    { what: "whose length has too many bytes", block: [0x84, 0x80, 0x80, 0x80, 0x80, 0x00, ...four], size: 4 },
    { what: "that says it is longer", block: [5, ...four], size: 4 },
    { what: "with much behind its last byte", block: [4, ...four, ...literal(text("x".repeat(99)))], size: 4 },
    { what: "that says it is shorter", block: [3, ...four], size: 4 },
    { what: "that says it has 2^32 bytes more", block: [0x84, 0x80, 0x80, 0x80, 0x10, ...four], size: 4 },
    { what: "that has more than it says", block: [4, ...four, ...literal(text("e"))], size: 4 },
    { what: "that has less than it says", block: [5, ...four], size: 5 },
    { what: "whose literal ends in the middle", block: [4, 3 << 2, 97, 98], size: 4 },
    { what: "whose literal's length ends in the middle", block: [4, 61 << 2, 3], size: 4 },
    { what: "whose literal has 2^32 bytes", block: [4, 63 << 2, 255, 255, 255, 255, 1, 2, 3, 4], size: 4 },
    { what: "whose literal reaches behind its end", block: [3, ...four], size: 3 },
    { what: "that begins with a match", block: [4, ...match(1, 4, 1)], size: 4 },
    { what: "whose match begins before it", block: [8, ...four, ...match(5, 4, 1)], size: 8 },
    { what: "whose match begins far before it", block: [8, ...four, ...match(2 ** 32 - 1, 4, 4)], size: 8 },
    { what: "whose match has distance 0", block: [8, ...four, ...match(0, 4, 1)], size: 8 },
    { what: "whose far match has distance 0", block: [8, ...four, ...match(0, 4, 4)], size: 8 },
    { what: "whose match reaches behind its end", block: [8, ...four, ...match(4, 5, 2)], size: 8 },
    { what: "whose match ends in the middle", block: [8, ...four, ...match(4, 4, 2).slice(0, 2)], size: 8 },
  ])("$what", ({ block, size }) => {
    expect(() => unpack(block, size)).toThrow(RangeError);
  });
});
