import type { NumericTensorType, CastRules } from "../../binding/contract.js";
import { type ColumnType, showType } from "../../columnar/types.js";

/**
 * How numbers of one type become a tensor's here, without DuckDB. `copy`: each is one of the tensor's; `round`: a double
 * becomes a float, unless it overflows; `exact`: an integer of 32 bits that the float holds, `long`: of 64; `widen`: an
 * integer of up to 32 bits becomes one of 64.
 */
export type Cast = "copy" | "round" | "exact" | "long" | "widen";

const bitsOf: Readonly<Record<string, number>> = { int8: 7, uint8: 8, int16: 15, uint16: 16, int32: 31, uint32: 32 };
/** Whole numbers of so many bits are each a float of the type. */
export const exactBits: Partial<Record<NumericTensorType, number>> = { float32: 24, float64: 53 };

/** Finds a cast that needs no DuckDB; undefined: only DuckDB has it. Both give the same values: see `castSql`. */
export function castOf(from: ColumnType, dtype: NumericTensorType, { cast }: CastRules): Cast | undefined {
  if (from === dtype) {
    return "copy";
  }
  if (dtype === "bool" || dtype === "float16") {
    return undefined;
  }
  const name = showType(from);
  const held = exactBits[dtype];
  if (held === undefined) {
    return integerCast(name, dtype);
  }
  if (name === "bool" || (name === "float32" && dtype === "float64")) {
    return "copy";
  }
  if (name === "float64") {
    return "round";
  }
  const bits = bitsOf[name];
  if (bits !== undefined) {
    return bits <= held ? "copy" : cast === "exact" ? "exact" : undefined;
  }
  return (name === "int64" || name === "uint64") && cast === "exact" ? "long" : undefined;
}

function integerCast(name: string, dtype: string): Cast | undefined {
  const isLong = dtype === "int64" || dtype === "uint64";
  const [bits, target] = [bitsOf[name], isLong ? 64 : bitsOf[dtype]];
  const cast = isLong ? "widen" : "copy";
  if (name === "bool") {
    return cast;
  }
  const losesSign = dtype.startsWith("u") && !name.startsWith("u");
  return bits !== undefined && target !== undefined && bits <= target && !losesSign ? cast : undefined;
}
