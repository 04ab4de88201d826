import { splitZoned } from "../../../columnar/json-text.js";
import { floorThousands, infiniteDay, infiniteMicros, isInfinite } from "../../../columnar/dates-and-times.js";
import type { Values } from "../../../columnar/values.js";
import { daysTo2000, microsTo2000 } from "./calendar.js";

/**
 * Writes the values of one column in COPY's binary format: a 32-bit length, then the value; a NULL is a length of -1.
 * Everything is big-endian.
 */
export interface FieldWriter {
  /** Bytes of every value, without its length word; undefined where they differ or some are NULL. */
  readonly width: number | undefined;
  /** Adds the bytes of the values of rows [from, to) to sizes[0 …]. */
  measure(from: number, to: number, sizes: Int32Array): void;
  /** Writes rows [from, to) at positions[0 …], and moves these behind them. */
  write(from: number, to: number, out: Out, positions: Int32Array): void;
}

export interface Out {
  readonly view: DataView;
  readonly bytes: Uint8Array;
}

/** Writes value `row` at `at`. */
type Put = (view: DataView, at: number, row: number) => void;

/** Values of `width` bytes each. `put` is called for values that are not NULL. */
export function fixedField(valid: Uint8Array | undefined, width: number, put: Put): FieldWriter {
  return {
    width: valid === undefined ? width : undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        sizes[row - from] = (sizes[row - from] as number) + (valid?.[row] === 0 ? 0 : width);
      }
    },
    write(from, to, { view }, positions) {
      for (let row = from; row < to; row += 1) {
        const at = positions[row - from] as number;
        if (valid?.[row] === 0) {
          view.setInt32(at, -1);
          positions[row - from] = at + 4;
          continue;
        }
        view.setInt32(at, width);
        put(view, at + 4, row);
        positions[row - from] = at + 4 + width;
      }
    },
  };
}

/** Elements that JavaScript reads as numbers. */
export function numbersOf(data: Values): Exclude<Values, BigInt64Array | BigUint64Array> {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    throw new TypeError("expected numbers of less than 64 bits, found 64-bit integers");
  }
  return data;
}

function bigintsOf(data: Values): BigInt64Array | BigUint64Array {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    return data;
  }
  throw new TypeError("expected 64-bit integers, found smaller numbers");
}

/** 32-bit words, the least significant first. */
function wordsOf({ buffer, byteOffset, byteLength }: Values): Uint32Array {
  return new Uint32Array(buffer, byteOffset, byteLength / 4);
}

export function int16Put(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    view.setInt16(at, values[row] as number);
  };
}

export function int32Put(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    view.setInt32(at, values[row] as number);
  };
}

const wordSpan = 2 ** 32;

export function int64Put(data: Values): Put {
  if (data instanceof BigInt64Array) {
    const words = wordsOf(data);
    return (view, at, row) => {
      view.setUint32(at, words[row * 2 + 1] as number);
      view.setUint32(at + 4, words[row * 2] as number);
    };
  }
  const values = numbersOf(data);
  return (view, at, row) => {
    const value = values[row] as number;
    view.setInt32(at, Math.floor(value / wordSpan));
    view.setUint32(at + 4, value >>> 0);
  };
}

export function float32Put(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    view.setFloat32(at, values[row] as number);
  };
}

export function float64Put(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    view.setFloat64(at, values[row] as number);
  };
}

export function boolPut(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    view.setUint8(at, values[row] === 0 ? 0 : 1);
  };
}

/** DuckDB flips the first bit of a UUID, so that they sort as signed integers. */
export function uuidPut(data: Values): Put {
  const words = wordsOf(data);
  return (view, at, row) => {
    view.setUint32(at, ((words[row * 4 + 3] as number) ^ 0x8000_0000) >>> 0);
    view.setUint32(at + 4, words[row * 4 + 2] as number);
    view.setUint32(at + 8, words[row * 4 + 1] as number);
    view.setUint32(at + 12, words[row * 4] as number);
  };
}

export function datePut(data: Values): Put {
  const values = numbersOf(data);
  return (view, at, row) => {
    const day = values[row] as number;
    view.setInt32(at, day === infiniteDay ? day : day === -infiniteDay ? -infiniteDay - 1 : day - daysTo2000);
  };
}

/** `nanos`: values count nanoseconds, of which Postgres keeps microseconds, rounded down. None of them is infinite. */
export function timestampPut(data: Values, nanos: boolean): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const value = values[row] as bigint;
    if (!nanos && isInfinite(value)) {
      view.setBigInt64(at, value > 0n ? value : -infiniteMicros - 1n);
      return;
    }
    view.setBigInt64(at, (nanos ? floorThousands(value) : value) - microsTo2000);
  };
}

export function timePut(data: Values, nanos: boolean): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const value = values[row] as bigint;
    view.setBigInt64(at, nanos ? value / 1000n : value);
  };
}

/** Postgres counts zones westwards. */
export function timetzPut(data: Values): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const { micros, offsetSeconds } = splitZoned(values[row] as bigint);
    view.setBigInt64(at, micros);
    view.setInt32(at + 8, -offsetSeconds);
  };
}

/** DuckDB: int32 months, int32 days, int64 microseconds; Postgres has them the other way round. */
export function intervalPut(data: Values): Put {
  const words = wordsOf(data);
  return (view, at, row) => {
    view.setUint32(at, words[row * 4 + 3] as number);
    view.setUint32(at + 4, words[row * 4 + 2] as number);
    view.setUint32(at + 8, words[row * 4 + 1] as number);
    view.setUint32(at + 12, words[row * 4] as number);
  };
}
