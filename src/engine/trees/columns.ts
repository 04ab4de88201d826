import { assertNever } from "../../util/errors.js";
import { type Ensemble, type TreeNodes, Unsupported } from "./ensemble.js";

/**
 * The columns of bytes that conditions are looked up in. A condition holds for a row where its column's byte, as a
 * signed number, is not above its rank.
 */
export interface Columns {
  readonly ranked: readonly RankedFeature[];
  readonly sets: readonly SetColumn[];
  readonly count: number;
  /** The condition of each node that is no leaf. */
  readonly conditions: ReadonlyMap<number, Condition>;
}

/** A feature whose values are ranked among its thresholds. */
export interface RankedFeature {
  readonly feature: number;
  /** Thresholds, ascending, each once: a value up to a threshold fulfils its condition. */
  readonly thresholds: Float64Array;
  readonly columns: readonly RankColumn[];
}

/** The ranks from `base` on, up to 255 of them. */
interface RankColumn {
  readonly column: number;
  readonly base: number;
  readonly nanIsTrue: boolean;
}

/** 0 where a feature's value is one of the members, else 1. */
export interface SetColumn {
  readonly column: number;
  readonly feature: number;
  /** The set's members, ascending, each once. */
  readonly members: Float64Array;
  readonly nanIsTrue: boolean;
}

export interface Condition {
  readonly column: number;
  /** -128 to 127. */
  readonly rank: number;
  /** The node's own is the opposite. */
  readonly isOpposite: boolean;
}

const ranksPerColumn = 255;

/** A node's condition as one of two kinds. */
type Test = { readonly isOpposite: boolean; readonly nanIsTrue: boolean } & (
  | { readonly kind: "upTo"; readonly threshold: number }
  | { readonly kind: "member"; readonly members: Float64Array }
);

/** @param isDouble what the rows hold, and what thresholds are compared as */
export function columnsOf({ nodes }: Pick<Ensemble, "nodes">, isDouble: boolean): Columns {
  const tests = new Map<number, Test>();
  const thresholds = new Map<number, Set<number>>();
  for (const [node, mode] of nodes.modes.entries()) {
    if (mode !== "LEAF") {
      const test = testOf(nodes, node, isDouble);
      tests.set(node, test);
      if (test.kind === "upTo") {
        const feature = nodes.features[node] ?? 0;
        const own = thresholds.get(feature) ?? new Set();
        thresholds.set(feature, own.add(test.threshold));
      }
    }
  }
  return layOut(nodes, tests, thresholds);
}

function testOf(nodes: TreeNodes, node: number, isDouble: boolean): Test {
  const threshold = nodes.thresholds[node] ?? Number.NaN;
  const nanIsTrue = nodes.missingTrue[node] === 1;
  const members = nodes.members.get(node) ?? Float64Array.of(threshold);
  const mode = nodes.modes[node] ?? "LEAF";
  if ((nodes.features[node] ?? -1) < 0) {
    throw new Unsupported("a feature before the first");
  }
  if (mode !== "MEMBER" && !isExact(threshold, isDouble)) {
    throw new Unsupported(`threshold ${threshold}`);
  }
  switch (mode) {
    case "LEQ":
      return { kind: "upTo", threshold: threshold + 0, nanIsTrue, isOpposite: false };
    case "LT":
      return { kind: "upTo", threshold: below(threshold, isDouble), nanIsTrue, isOpposite: false };
    case "GT":
      return { kind: "upTo", threshold: threshold + 0, nanIsTrue: !nanIsTrue, isOpposite: true };
    case "GTE":
      return { kind: "upTo", threshold: below(threshold, isDouble), nanIsTrue: !nanIsTrue, isOpposite: true };
    case "NEQ":
      return { kind: "member", members, nanIsTrue: false, isOpposite: true }; // NaN differs from all
    case "EQ":
    case "MEMBER":
      return { kind: "member", members: sorted(members, isDouble), nanIsTrue, isOpposite: false };
    case "LEAF":
      throw new Unsupported("a leaf with a condition");
    default:
      return assertNever(mode);
  }
}

function isExact(value: number, isDouble: boolean): boolean {
  return isDouble ? !Number.isNaN(value) : Math.fround(value) === value;
}

function sorted(members: Float64Array, isDouble: boolean): Float64Array {
  if (!members.every((member) => isExact(member, isDouble))) {
    throw new Unsupported("a set with members that are no numbers");
  }
  return new Float64Array(new Set(members)).toSorted();
}

/** The largest number below another: x < t is the same as x <= this. @throws Unsupported below -Infinity */
function below(value: number, isDouble: boolean): number {
  if (value === Number.NEGATIVE_INFINITY) {
    throw new Unsupported("a value below -Infinity");
  }
  return neighbourOf(value, -1, isDouble);
}

interface Ranked {
  readonly thresholds: Float64Array;
  readonly ranks: ReadonlyMap<number, number>;
  /** Columns by the first rank that they hold, and by whether NaN fulfils the condition. */
  readonly columns: Map<number, RankColumn>;
}

function rankOf(ascending: Float64Array): Ranked {
  const ranks = new Map<number, number>();
  for (const [rank, threshold] of ascending.entries()) {
    ranks.set(threshold, rank);
  }
  return { thresholds: ascending, ranks, columns: new Map() };
}

function layOut(
  nodes: TreeNodes,
  tests: ReadonlyMap<number, Test>,
  thresholds: ReadonlyMap<number, ReadonlySet<number>>,
): Columns {
  const ranked = new Map<number, Ranked>();
  for (const [feature, values] of [...thresholds].toSorted(([a], [b]) => a - b)) {
    ranked.set(feature, rankOf(new Float64Array(values).toSorted()));
  }
  const sets = new Map<string, SetColumn>();
  const conditions = new Map<number, Condition>();
  let count = 0;
  for (const [node, test] of tests) {
    const { isOpposite, nanIsTrue } = test;
    const feature = nodes.features[node] ?? 0;
    const values = ranked.get(feature);
    if (test.kind === "member" || values === undefined) {
      const members = test.kind === "member" ? test.members : new Float64Array();
      const key = `${feature} ${String(nanIsTrue)} ${members.join()}`;
      const set = sets.get(key) ?? { column: count, feature, members, nanIsTrue };
      count += sets.has(key) ? 0 : 1;
      sets.set(key, set);
      conditions.set(node, { column: set.column, rank: 0, isOpposite });
    } else {
      const rank = values.ranks.get(test.threshold) ?? 0;
      const base = rank - (rank % ranksPerColumn);
      const key = 2 * base + (nanIsTrue ? 1 : 0);
      const known = values.columns.get(key) ?? { column: count, base, nanIsTrue };
      count += values.columns.has(key) ? 0 : 1;
      values.columns.set(key, known);
      conditions.set(node, { column: known.column, rank: rank - base - 128, isOpposite });
    }
  }
  return {
    ranked: [...ranked].map(([feature, value]) => ({
      feature,
      thresholds: value.thresholds,
      columns: [...value.columns.values()],
    })),
    sets: [...sets.values()],
    count,
    conditions,
  };
}

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
