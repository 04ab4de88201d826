/** Makes no objects: `JSON.parse` takes five times as long. What is passed over is checked as well (RFC 8259). */
export class JsonFields {
  /** Where the value of field i begins and ends; an end of 0: the object does not have it. */
  readonly starts: Int32Array;
  readonly ends: Int32Array;
  readonly #keys: readonly Buffer[];
  readonly #byName: ReadonlyMap<string, number>;
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;
  #end = 0;

  constructor(names: readonly string[]) {
    this.starts = new Int32Array(names.length);
    this.ends = new Int32Array(names.length);
    this.#keys = names.map((name) => Buffer.from(JSON.stringify(name)));
    this.#byName = new Map(names.map((name, index) => [name, index]));
  }

  /** Returns what is wrong with bytes [start, end); undefined: they are an object. Of two fields of a name the last counts. */
  read(bytes: Buffer, start: number, end: number): string | undefined {
    this.#bytes = bytes; // no assignments of several values here: each would make an array, for each token
    this.#at = start;
    this.#end = end;
    this.ends.fill(0);
    this.#space();
    if (bytes[this.#at] !== open.brace || this.#at >= end) {
      return "it is no JSON object";
    }
    const fits = this.#object();
    this.#space();
    return fits && this.#at === end ? undefined : `it is no JSON from byte ${this.#at - start} on`;
  }

  #object(): boolean {
    let expected = 0;
    this.#at += 1;
    this.#space();
    if (this.#byte() === close.brace) {
      this.#at += 1;
      return true;
    }
    for (;;) {
      this.#space();
      const keyStart = this.#at;
      if (!this.#text()) {
        return false;
      }
      const field = this.#fieldOf(keyStart, this.#at, expected);
      this.#space();
      if (this.#byte() !== colon) {
        return false;
      }
      this.#at += 1;
      this.#space();
      const valueStart = this.#at;
      if (!this.#value(1)) {
        return false;
      }
      if (field >= 0) {
        this.starts[field] = valueStart;
        this.ends[field] = this.#at;
        expected = field + 1;
      }
      this.#space();
      const byte = this.#byte();
      this.#at += 1;
      if (byte === close.brace) {
        return true;
      }
      if (byte !== comma) {
        return false;
      }
    }
  }

  /** -1: none. Fields mostly come in one order. */
  #fieldOf(start: number, end: number, expected: number): number {
    if (this.#isKey(expected, start, end)) {
      return expected;
    }
    for (let index = 0; index < this.#keys.length; index += 1) {
      if (this.#isKey(index, start, end)) {
        return index;
      }
    }
    for (let at = start; at < end; at += 1) {
      if (this.#bytes[at] === backslash) {
        return this.#byName.get(JSON.parse(this.#bytes.toString("utf8", start, end)) as string) ?? -1;
      }
    }
    return -1;
  }

  #isKey(index: number, start: number, end: number): boolean {
    const key = this.#keys[index];
    if (key?.length !== end - start) {
      return false;
    }
    for (let at = 0; at < key.length; at += 1) {
      if (key[at] !== this.#bytes[start + at]) {
        return false;
      }
    }
    return true;
  }

  #byte(): number {
    return this.#at < this.#end ? (this.#bytes[this.#at] as number) : -1;
  }

  #space(): void {
    const bytes = this.#bytes;
    const end = this.#end;
    let at = this.#at;
    for (; at < end && (bytes[at] as number) <= 0x20; at += 1) {
      const byte = bytes[at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) {
        break;
      }
    }
    this.#at = at;
  }

  #value(depth: number): boolean {
    switch (this.#byte()) {
      case quote:
        return this.#text();
      case 0x74:
        return this.#literal("true");
      case 0x66:
        return this.#literal("false");
      case 0x6e:
        return this.#literal("null");
      case open.brace:
        return depth < mostDepth && this.#items(close.brace, true, depth + 1);
      case open.bracket:
        return depth < mostDepth && this.#items(close.bracket, false, depth + 1);
      default:
        return this.#number();
    }
  }

  #items(last: number, hasKeys: boolean, depth: number): boolean {
    this.#at += 1;
    this.#space();
    if (this.#byte() === last) {
      this.#at += 1;
      return true;
    }
    for (;;) {
      this.#space();
      if (hasKeys) {
        if (!this.#text()) {
          return false;
        }
        this.#space();
        if (this.#byte() !== colon) {
          return false;
        }
        this.#at += 1;
        this.#space();
      }
      if (!this.#value(depth)) {
        return false;
      }
      this.#space();
      const byte = this.#byte();
      this.#at += 1;
      if (byte !== comma) {
        return byte === last;
      }
    }
  }

  #literal(word: string): boolean {
    for (let index = 0; index < word.length; index += 1, this.#at += 1) {
      if (this.#byte() !== word.charCodeAt(index)) {
        return false;
      }
    }
    return true;
  }

  #text(): boolean {
    if (this.#byte() !== quote) {
      return false;
    }
    const bytes = this.#bytes;
    const end = this.#end;
    for (let at = this.#at + 1; at < end; at += 1) {
      const byte = bytes[at] as number;
      if (byte === quote) {
        this.#at = at + 1;
        return true;
      }
      if (byte === backslash) {
        at += 1;
        const isHex = bytes[at] === 0x75;
        if (isHex ? !hex4.test(bytes.toString("latin1", at + 1, Math.min(at + 5, end))) : !isEscape(bytes[at])) {
          break;
        }
        at += isHex ? 4 : 0;
      } else if (byte < 0x20) {
        break;
      }
    }
    return false;
  }

  #number(): boolean {
    if (this.#byte() === 0x2d) {
      this.#at += 1;
    }
    const first = this.#byte();
    const digits = this.#digits();
    if (digits === 0 || (first === 0x30 && digits > 1)) {
      return false;
    }
    if (this.#byte() === 0x2e) {
      this.#at += 1;
      if (this.#digits() === 0) {
        return false;
      }
    }
    if (this.#byte() === 0x65 || this.#byte() === 0x45) {
      this.#at += 1;
      if (this.#byte() === 0x2b || this.#byte() === 0x2d) {
        this.#at += 1;
      }
      return this.#digits() > 0;
    }
    return true;
  }

  #digits(): number {
    const from = this.#at;
    const bytes = this.#bytes;
    const end = this.#end;
    let at = from;
    while (at < end && (bytes[at] as number) >= 0x30 && (bytes[at] as number) <= 0x39) {
      at += 1;
    }
    this.#at = at;
    return at - from;
  }
}

const open = { brace: 0x7b, bracket: 0x5b } as const;
const close = { brace: 0x7d, bracket: 0x5d } as const;
const [quote, backslash, colon, comma] = [0x22, 0x5c, 0x3a, 0x2c];
/** Deeper values do not count as JSON. */
const mostDepth = 200;
const hex4 = /^[\dA-Fa-f]{4}$/;

function isEscape(byte: number | undefined): boolean {
  return byte !== undefined && '"\\/bfnrt'.includes(String.fromCharCode(byte));
}

/** Powers of ten that a double holds exactly. */
const exactPowers = Array.from({ length: 23 }, (_, power) => 10 ** power);

/** The number that bytes of JSON are. Most are exact by one division; others are left to the engine. */
export function numberIn(bytes: Buffer, start: number, end: number): number {
  let digits = 0;
  let fraction = -1;
  let value = 0;
  const isNegative = bytes[start] === 0x2d;
  for (let at = start + (isNegative ? 1 : 0); at < end; at += 1) {
    const byte = bytes[at] as number;
    if (byte >= 0x30 && byte <= 0x39) {
      value = value * 10 + (byte - 0x30);
      digits += 1;
    } else if (byte === 0x2e) {
      fraction = digits;
    } else {
      digits = Number.POSITIVE_INFINITY;
      break;
    }
  }
  const scale = fraction < 0 ? 0 : digits - fraction;
  if (digits > 15 || scale > 22) {
    return Number(bytes.toString("latin1", start, end));
  }
  const exact = value / (exactPowers[scale] as number);
  return isNegative ? -exact : exact;
}
