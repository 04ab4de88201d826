// Damage to a file's bytes, told by a seed.

/** Numbers in [0, 1) from a seed (mulberry32). */
function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const kinds = ["bit", "bytes", "zeros", "ones", "copy", "cut", "remove", "insert"];

/**
 * The file with some damage, and what was done to it: a kind, and the bytes [from, to) of the good file that it
 * concerns. `places` are offsets where structures begin, which uniform damage would seldom meet.
 */
export function mutate(good, seed, places) {
  const random = randomOf(seed);
  const below = (limit) => Math.floor(random() * limit);
  const kind = kinds[below(kinds.length)];
  const area = random();
  const at =
    area < 0.4
      ? below(good.length)
      : area < 0.7
        ? Math.min(good.length - 1, places[below(places.length)] + below(40))
        : good.length - 1 - below(Math.min(good.length, footerBytes(good) + 8));
  const length = Math.min(good.length - at, 1 + below(random() < 0.7 ? 8 : 2000));
  const bytes = Buffer.from(good);
  switch (kind) {
    case "bit":
      bytes[at] ^= 1 << below(8);
      return { bytes, kind, from: at, to: at + 1 };
    case "bytes":
      for (let index = at; index < at + length; index += 1) {
        bytes[index] = below(256);
      }
      return { bytes, kind, from: at, to: at + length };
    case "zeros":
    case "ones":
      bytes.fill(kind === "zeros" ? 0 : 0xff, at, at + length);
      return { bytes, kind, from: at, to: at + length };
    case "copy":
      good.copy(bytes, at, below(good.length - length + 1), at + length);
      return { bytes, kind, from: at, to: at + length };
    case "cut":
      return { bytes: bytes.subarray(0, at), kind, from: at, to: good.length };
    case "remove":
      return {
        bytes: Buffer.concat([good.subarray(0, at), good.subarray(at + length)]),
        kind,
        from: at,
        to: good.length,
      };
    default: {
      const start = below(good.length - length + 1);
      const more = good.subarray(start, start + length);
      return { bytes: Buffer.concat([good.subarray(0, at), more, good.subarray(at)]), kind, from: at, to: good.length };
    }
  }
}

function footerBytes(good) {
  return good.readUInt32LE(good.length - 8);
}
