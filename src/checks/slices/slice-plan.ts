import { type ColumnType, showType } from "../../columnar/types.js";
import { costOf } from "../features/feature-limits.js";
import { spanBytes } from "../profiles/column-profile.js";
import type { VectorLimits } from "../profiles/vector-profile.js";

/** The slices of a run: rows that share a value of a column are profiled separately. */
export interface SlicePlan {
  /** The columns of the output whose values divide the rows. */
  readonly columns: readonly string[];
  /** The predicted columns that are profiled. */
  readonly outputs: readonly string[];
  /** The limit of values of a column. */
  readonly values: number;
}

const mostSlices = 50;
/**
 * The number of slices that must fit. If there are many outputs, fewer of them are profiled, so that this many slices
 * fit.
 */
const fewestSlices = 10;

/** The limits of the profile of a slice. */
export const sliceLimits: VectorLimits = { bins: 32, values: 8, nameBytes: 1024, dimensions: 1 };

/**
 * Plans slices of the columns in `checks.slices` for the first outputs: as many as fit into the 64 KiB of a span's
 * profiles.
 */
export function planSlices(
  columns: readonly string[],
  outputs: readonly { readonly name: string; readonly type: ColumnType }[],
): SlicePlan {
  const chosen: string[] = [];
  let slices = mostSlices;
  let cost = 0;
  for (const { name, type } of outputs) {
    if (typeof type === "object" && type.kind !== "decimal") {
      continue; // profiles of vectors are too large
    }
    cost += costOf({ name, kind: type === "utf8" ? "text" : "number", type: showType(type) });
    const fitting = Math.min(mostSlices, Math.floor(spanBytes / cost));
    if (chosen.length > 0 && fitting < fewestSlices) {
      break;
    }
    chosen.push(name);
    slices = fitting;
  }
  return { columns, outputs: chosen, values: Math.floor(slices / columns.length) };
}

/** Whether the values of a column of this type can divide rows. */
export function dividesRows(type: ColumnType): boolean {
  return type === "utf8" || type === "bool" || (typeof type === "string" && /^u?int\d+$/.test(type));
}
