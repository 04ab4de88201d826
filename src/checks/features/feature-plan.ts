import { type ColumnType, showType } from "../../columnar/types.js";
import { costOf, type FeatureKind, featureBytes, type Measured } from "./feature-limits.js";

/** A column that the model reads, and where a record batch has its values: as the model is given them. */
export interface FeatureColumn {
  /** The column's name in the spec: `age`, or `user.age`. */
  readonly name: string;
  readonly kind: FeatureKind;
  readonly type: ColumnType;
  /** The index among the inputs of a record batch. */
  readonly input: number;
  /** The place in a row of the matrix; 0 unless `kind` is `number`. */
  readonly place: number;
  /** Only its rows and its NULLs are counted: its values name rows, or are texts for a tokenizer. */
  readonly isKey?: true;
}

/** Which columns of which rows are profiled. Plain JSON: it is sent to the threads that have the rows. */
export interface FeaturePlan {
  readonly columns: readonly FeatureColumn[];
  /** Further columns that the model reads, which are not profiled. */
  readonly left: number;
  /** Rows of a span: profiles are made span by span. */
  readonly spanRows: number;
  /** One row of this many is sampled. */
  readonly every: number;
}

/** Columns of a table whose features are profiled. */
const mostFeatures = 32;
/** Rows that a sample has at least, if as many are scored; fewer than twice as many. */
const sampledRows = 8192;

/** Of how many rows one is sampled, if so many are scored. */
export function sampleEvery(rows: number): number {
  return Math.max(1, Math.floor(rows / sampledRows));
}

/**
 * Chooses which columns are profiled: the first ones that the model reads, at most 32, as many as have their place in the
 * 64 KiB of a span's profiles in addition to the outputs.
 */
export function planFeatures(
  all: readonly FeatureColumn[],
  { outputs, every, spanRows }: { readonly outputs: number; readonly every: number; readonly spanRows: number },
): FeaturePlan {
  const names = new Set<string>();
  const columns: FeatureColumn[] = [];
  let left = 0;
  let bytes = 0;
  for (const column of all) {
    if (names.has(column.name)) {
      continue; // two inputs of the model read it
    }
    names.add(column.name);
    const cost = costOf(measuredColumn(column));
    if (left === 0 && columns.length < mostFeatures && bytes + cost <= featureBytes(outputs)) {
      columns.push(column);
      bytes += cost;
    } else {
      left += 1;
    }
  }
  return { columns, left, spanRows, every };
}

/** The column as its profile names it. */
export function measuredColumn({ name, kind, type }: FeatureColumn): Measured {
  return { name, kind, type: showType(type) };
}
