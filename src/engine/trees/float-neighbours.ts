const scratch = new DataView(new ArrayBuffer(8));

/** The next float32, or float64, above (1) or below (-1) a number that is one. */
export function neighbourOf(value: number, side: 1 | -1, isDouble: boolean): number {
  if (value === 0) {
    return side * (isDouble ? Number.MIN_VALUE : 2 ** -149);
  }
  const step = value > 0 ? side : -side;
  if (isDouble) {
    scratch.setFloat64(0, value);
    scratch.setBigInt64(0, scratch.getBigInt64(0) + BigInt(step));
    return scratch.getFloat64(0);
  }
  scratch.setFloat32(0, value);
  scratch.setInt32(0, scratch.getInt32(0) + step);
  return scratch.getFloat32(0);
}
