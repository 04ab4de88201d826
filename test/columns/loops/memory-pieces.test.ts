import { expect, test } from "vitest";
import { createMemoryPieces } from "#src/columns/loops/vectors.js";
import { randomOf } from "../../support/random.js";

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
