/** How values are stored in memory: the element of a typed array. */
export type ElementType =
  | "int8"
  | "int16"
  | "int32"
  | "int64"
  | "uint8"
  | "uint16"
  | "uint32"
  | "uint64"
  | "float32"
  | "float64";

interface ArrayOf {
  int8: Int8Array<ArrayBuffer>;
  int16: Int16Array<ArrayBuffer>;
  int32: Int32Array<ArrayBuffer>;
  int64: BigInt64Array<ArrayBuffer>;
  uint8: Uint8Array<ArrayBuffer>;
  uint16: Uint16Array<ArrayBuffer>;
  uint32: Uint32Array<ArrayBuffer>;
  uint64: BigUint64Array<ArrayBuffer>;
  float32: Float32Array<ArrayBuffer>;
  float64: Float64Array<ArrayBuffer>;
}

export type Values = ArrayOf[ElementType];

const constructors = {
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
} as const;

/** Types that are an element each and mean just that. */
export const elementTypes = Object.keys(constructors) as readonly ElementType[];

export function isElementType(name: string | undefined): name is ElementType {
  return name !== undefined && Object.hasOwn(constructors, name);
}

export function bytesPerElement(type: ElementType): number {
  return constructors[type].BYTES_PER_ELEMENT;
}

export function elementOf(values: Values): ElementType {
  const found = elementTypes.find((type) => values instanceof constructors[type]);
  if (found === undefined) {
    throw new TypeError("values are kept in typed arrays");
  }
  return found;
}

/** A zeroed array of `length` elements. */
export function allocate(type: ElementType, length: number): Values {
  return new constructors[type](length);
}

/** `length` elements of `buffer` from `byteOffset`, without a copy. */
export function viewOf(type: ElementType, buffer: ArrayBuffer, byteOffset: number, length: number): Values {
  return new constructors[type](buffer, byteOffset, length);
}

/** Copies `source[from, to)` to `target` at `at`; both have the same element type. */
export function copyValues(target: Values, at: number, source: Values, from: number, to: number): void {
  // One call for all types: TypeScript cannot see that the two arrays agree.
  (target as Float64Array).set((source as Float64Array).subarray(from, to), at);
}

/** Bytes as elements: in place where they are aligned. */
export function elementsOf(type: ElementType, bytes: Uint8Array<ArrayBuffer>): Values {
  const size = bytesPerElement(type);
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  return viewOf(type, aligned.buffer, aligned.byteOffset, Math.floor(bytes.length / size));
}

/** `length` bits from bit `from` on, least significant first, as a byte each. */
export function unpackBits(bits: Uint8Array, from: number, length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let index = 0; index < length; index += 1) {
    const bit = from + index;
    bytes[index] = ((bits[bit >> 3] as number) >> (bit & 7)) & 1;
  }
  return bytes;
}
