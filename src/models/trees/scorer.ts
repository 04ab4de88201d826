import { areHere, loopsSharingMemory, releaseMemory, takeMemory } from "../../columns/loops/vectors.js";
import { assertNever } from "../../base/errors.js";
import { type Ensemble, type TreeNodes, Unsupported } from "./ensemble.js";
import { treeLoopsCode } from "./tree-loops-code.js";

export type Floats = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** The trees of an ensemble in this thread's WebAssembly memory. */
interface TreeScorer extends Disposable {
  readonly features: number;
  /**
   * Adds up the leaves of rows, block after block.
   * @param x row-major, `width` values a row, of the type that the scorer was made for
   * @param take is given the scores of rows [from, to), a list a target from its start on
   */
  score(x: Floats, width: number, take: (from: number, to: number, scores: readonly Floats[]) => void): void;
}

/** Columns of more bytes leave the cache. */
const blockBytes = 96 * 1024;
const mostBlockRows = 256;
/** What `scoreBlock` takes at once. */
const rowStep = 64;
const belowAll = -1;
const aboveAll = 2 ** 30;

interface Block {
  readonly memory: TreeMemory;
  readonly isDouble: boolean;
  readonly rows: number;
  /** The address of each column. */
  readonly columnAt: (column: number) => number;
  /** The address of each target's scores. */
  readonly scoresAt: (target: number) => number;
}

/** @throws Unsupported */
export function openTreeScorer(ensemble: Ensemble, isDouble: boolean): TreeScorer {
  const memory = openTreeMemory();
  try {
    return createScorer(ensemble, isDouble, memory);
  } catch (error) {
    memory[Symbol.dispose]();
    throw error;
  }
}

function createScorer(ensemble: Ensemble, isDouble: boolean, memory: TreeMemory): TreeScorer {
  const { buffer, loops } = memory;
  const size = isDouble ? 8 : 4;
  const columns = columnsOf(ensemble, isDouble);
  if (ensemble.roots.length === 0) {
    throw new Unsupported("there are no trees");
  }

  const fitting = Math.floor(blockBytes / Math.max(1, columns.count) / rowStep) * rowStep;
  const blockRows = Math.max(rowStep, Math.min(mostBlockRows, fitting));
  const columnsStart = memory.take(Math.max(1, columns.count) * blockRows);
  const scoresStart = memory.take(ensemble.targets * blockRows * size);
  const block: Block = {
    memory,
    isDouble,
    rows: blockRows,
    columnAt: (column) => columnsStart + column * blockRows,
    scoresAt: (target) => scoresStart + target * blockRows * size,
  };
  const scores = Array.from({ length: ensemble.targets }, (_, target) =>
    floatsAt(block, block.scoresAt(target), blockRows),
  );

  const exits = memory.take(rowStep * 4);
  const fill = columnFiller(columns, block);
  const table = writeTables(ensemble, columns, block);
  const copy = rowCopier(block);
  return {
    features: ensemble.nodes.features.reduce((most, feature) => Math.max(most, feature + 1), 0),
    score(x, width, take) {
      const rows = x.length / width;
      for (let from = 0; from < rows; from += blockRows) {
        const to = Math.min(rows, from + blockRows);
        const isThere = x.buffer === buffer && to - from === blockRows;
        const at = isThere ? x.byteOffset + from * width * size : copy(x.subarray(from * width, to * width), width);
        const padded = Math.ceil((to - from) / rowStep) * rowStep;
        fill(at, width * size, padded);
        for (const sums of scores) {
          sums.fill(-0, 0, padded);
        }
        loops.scoreBlock(table.start, table.end, padded, Number(isDouble), exits);
        take(from, to, scores);
      }
    },
    [Symbol.dispose]() {
      memory[Symbol.dispose]();
    },
  };
}

function floatsAt({ memory, isDouble }: Block, at: number, length: number): Floats {
  return isDouble ? new Float64Array(memory.buffer, at, length) : new Float32Array(memory.buffer, at, length);
}

/** Copies rows that are in other memory, or end before their block does. Returns the address of the copy. */
function rowCopier(block: Block): (rows: Floats, width: number) => number {
  let copy = { width: 0, at: 0 };
  return (rows, width) => {
    if (copy.width < width) {
      copy = { width, at: block.memory.take(block.rows * width * (block.isDouble ? 8 : 4)) };
    }
    floatsAt(block, copy.at, block.rows * width).set(rows);
    return copy.at;
  };
}

/** Makes the columns of rows at an address, so many bytes apart. */
function columnFiller({ ranked, sets }: Columns, block: Block): (x: number, stride: number, rows: number) => void {
  const { memory, columnAt, isDouble } = block;
  const { loops } = memory;
  const size = isDouble ? 8 : 4;
  const ranks = memory.take(block.rows * 4);
  const laidRanked = ranked.map((feature) => ({ ...feature, ...writeSearched(block, feature.thresholds) }));
  const laidSets = sets.map((set) => ({ ...set, ...writeSearched(block, set.members) }));
  const rank = isDouble ? loops.rankDoubles : loops.rankFloats;
  const mark = isDouble ? loops.memberDoubles : loops.memberFloats;
  return (x, stride, rows) => {
    for (const { feature, at, firstHalf, columns } of laidRanked) {
      rank(x + feature * size, stride, rows, at, firstHalf, ranks);
      for (const { column, base, nanIsTrue } of columns) {
        loops.rankBytes(ranks, rows, base, nanIsTrue ? belowAll : aboveAll, columnAt(column));
      }
    }
    for (const { feature, at, firstHalf, column, nanIsTrue } of laidSets) {
      mark(x + feature * size, stride, rows, at, firstHalf, nanIsTrue ? 0 : 1, columnAt(column));
    }
  };
}

/** Padded with NaN to a power of two: no value is greater than NaN. `firstHalf`: its size in bytes. */
function writeSearched(block: Block, values: Float64Array): { readonly at: number; readonly firstHalf: number } {
  const size = block.isDouble ? 8 : 4;
  const length = 2 ** Math.max(1, Math.ceil(Math.log2(values.length + 1)));
  const at = block.memory.take(length * size);
  const written = floatsAt(block, at, length);
  written.fill(Number.NaN);
  written.set(values);
  return { at, firstHalf: (length / 2) * size };
}

/** Trees with more leaves are walked: evaluating all of their conditions takes longer (docs/decisions/models-and-engines.md). */
const mostLeavesByBits = 256;
const leavesPerGroup = 8;
const wordBytes = 4;
const treeWords = 4;
const targetWords = 2;
const entryBytes = 8;
const nodeBytes = 16;

function writeTables(
  ensemble: Ensemble,
  columns: Columns,
  block: Block,
): { readonly start: number; readonly end: number } {
  const { memory } = block;
  const trees = ensemble.roots.map((root) => {
    const tree = flatten(ensemble, columns, root);
    return { ...tree, targets: targetsOf(ensemble, tree.leaves) };
  });
  const words = trees.reduce((sum, { targets }) => sum + treeWords + targets.length * targetWords, 0);
  const start = memory.take(words * wordBytes);
  const view = new DataView(memory.buffer);
  let at = start;
  const put = (...numbers: number[]): void => {
    for (const number of numbers) {
      view.setInt32(at, number, true);
      at += wordBytes;
    }
  };

  for (const tree of trees) {
    const byBits = tree.leaves.length <= mostLeavesByBits;
    const groups = byBits ? Math.ceil(tree.leaves.length / leavesPerGroup) : 0;
    const body = byBits ? writeEntries(block, tree, groups) : writeNodes(block, tree);
    put(groups, tree.depth, body, tree.targets.length);
    for (const target of tree.targets) {
      put(block.scoresAt(target), writeLeaves(ensemble, block, tree.leaves, target));
    }
  }
  return { start, end: at };
}

/** A tree whose leaves are numbered from where conditions hold to where they do not. */
interface FlatTree {
  /** Parents before their children. */
  readonly nodes: readonly FlatNode[];
  /** Nodes of the ensemble. */
  readonly leaves: readonly number[];
  /** Conditions above the deepest leaf. */
  readonly depth: number;
}

interface FlatNode {
  readonly condition: Condition;
  /** Leaves where the condition holds: [from, to). */
  readonly from: number;
  readonly to: number;
  /** Children: places in `nodes`, or, below 0, leaf -1 - child. */
  readonly whenTrue: number;
  readonly whenFalse: number;
}

function flatten({ nodes }: Ensemble, { conditions }: Columns, root: number): FlatTree {
  const flat: FlatNode[] = [];
  const leaves: number[] = [];
  let deepest = 0;
  const add = (node: number, depth: number): number => {
    deepest = Math.max(deepest, depth);
    const condition = conditions.get(node);
    if (condition === undefined) {
      leaves.push(node);
      return -leaves.length;
    }
    const place = flat.length;
    flat.push({ condition, from: 0, to: 0, whenTrue: 0, whenFalse: 0 });
    const { trueChildren, falseChildren } = nodes;
    const [first, second] = condition.isOpposite ? [falseChildren, trueChildren] : [trueChildren, falseChildren];
    const from = leaves.length;
    const whenTrue = add(first[node] ?? 0, depth + 1);
    const to = leaves.length;
    const whenFalse = add(second[node] ?? 0, depth + 1);
    flat[place] = { condition, from, to, whenTrue, whenFalse };
    return place;
  };
  add(root, 0);
  return { nodes: flat, leaves, depth: deepest };
}

/** For each group of leaves, the conditions that rule some of them out; the same condition once. */
function writeEntries({ memory, columnAt }: Block, { nodes }: FlatTree, groups: number): number {
  const entries = Array.from({ length: groups }, () => new Map<number, { condition: Condition; mask: number }>());
  for (const { condition, from, to } of nodes) {
    const key = condition.column * 256 + condition.rank + 128;
    for (let group = Math.floor(from / leavesPerGroup); group * leavesPerGroup < to; group += 1) {
      const first = Math.max(0, from - group * leavesPerGroup);
      const end = Math.min(leavesPerGroup, to - group * leavesPerGroup);
      const mask = (1 << end) - (1 << first);
      const known = entries[group]?.get(key);
      entries[group]?.set(key, { condition, mask: mask | (known?.mask ?? 0) });
    }
  }
  const count = entries.reduce((sum, { size }) => sum + size, 0);
  const start = memory.take((count + groups) * entryBytes);
  const view = new DataView(memory.buffer);
  let at = start;
  for (const group of entries) {
    view.setInt32(at, group.size * entryBytes, true);
    at += entryBytes;
    for (const { condition, mask } of group.values()) {
      view.setInt32(at, columnAt(condition.column), true);
      view.setInt8(at + 4, condition.rank);
      view.setUint8(at + 5, mask);
      at += entryBytes;
    }
  }
  return start;
}

/** Writes children next to each other, the one where the condition holds first. Leaves point to themselves. */
function writeNodes({ memory, columnAt }: Block, { nodes, leaves }: FlatTree): number {
  const start = memory.take((nodes.length + leaves.length) * nodeBytes);
  const view = new DataView(memory.buffer);
  let free = start + nodeBytes;
  const waiting = [{ node: 0, at: start }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { node, at } = next;
    const flat = nodes[node];
    if (flat === undefined) {
      view.setInt32(at, columnAt(0), true);
      view.setInt32(at + 4, 127, true); // no byte is above
      view.setInt32(at + 8, at, true);
      view.setInt32(at + 12, -1 - node, true);
    } else {
      view.setInt32(at, columnAt(flat.condition.column), true);
      view.setInt32(at + 4, flat.condition.rank, true);
      view.setInt32(at + 8, free, true);
      waiting.push({ node: flat.whenFalse, at: free + nodeBytes }, { node: flat.whenTrue, at: free });
      free += 2 * nodeBytes;
    }
  }
  return start;
}

/** The targets that a tree's leaves have weights of, ascending. */
function targetsOf({ weights, targets }: Ensemble, leaves: readonly number[]): number[] {
  const used = new Set<number>();
  for (const leaf of leaves) {
    const own = weights.targets.subarray(weights.starts[leaf], weights.starts[leaf + 1]);
    if (new Set(own).size !== own.length || own.some((target) => target < 0 || target >= targets)) {
      throw new Unsupported("a leaf whose weights are of one target, or of none that there is");
    }
    for (const target of own) {
      used.add(target);
    }
  }
  return [...used].toSorted((a, b) => a - b);
}

function writeLeaves(ensemble: Ensemble, block: Block, leaves: readonly number[], target: number): number {
  const { weights } = ensemble;
  const start = block.memory.take(leaves.length * (block.isDouble ? 8 : 4));
  const values = floatsAt(block, start, leaves.length);
  values.fill(-0); // it changes no score, and marks leaves without a weight for the target
  for (const [place, leaf] of leaves.entries()) {
    for (let index = weights.starts[leaf] ?? 0; index < (weights.starts[leaf + 1] ?? 0); index += 1) {
      if (weights.targets[index] === target) {
        const weight = (weights.values[index] ?? 0) + 0; // makes -0 a 0: only their bits differ
        if (!Number.isFinite(weight)) {
          throw new Unsupported(`weight ${weight}`);
        }
        values[place] = weight;
      }
    }
  }
  return start;
}

/** The loops of `tree-loops.wat`: addresses and strides are bytes. */
interface TreeLoops {
  readonly rankFloats: RankValues;
  readonly rankDoubles: RankValues;
  readonly rankBytes: (ranks: number, rows: number, base: number, nan: number, out: number) => void;
  readonly memberFloats: MarkMembers;
  readonly memberDoubles: MarkMembers;
  readonly scoreBlock: (tree: number, end: number, rows: number, isDouble: number, exits: number) => void;
}

type RankValues = (x: number, stride: number, rows: number, thresholds: number, firstHalf: number, out: number) => void;
type MarkMembers = (
  x: number,
  stride: number,
  rows: number,
  members: number,
  firstHalf: number,
  nan: number,
  out: number,
) => void;

let opened: TreeLoops | undefined;

/** Trees are many small pieces. */
const chunkBytes = 1024 * 1024;
const alignedBytes = 16;

interface TreeMemory extends Disposable {
  readonly loops: TreeLoops;
  readonly buffer: ArrayBuffer;
  /** The address of so many bytes. @throws Unsupported where there are none left */
  take(bytes: number): number;
}

function openTreeMemory(): TreeMemory {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  const take = (bytes: number): Uint8Array<ArrayBuffer> => {
    const piece = takeMemory(bytes);
    if (!areHere([piece])) {
      throw new Unsupported("there is no WebAssembly memory for it");
    }
    pieces.push(piece);
    return piece;
  };
  const { buffer } = take(1); // opens the memory
  let chunk = { at: 0, end: 0 };
  opened ??= loopsSharingMemory(treeLoopsCode).loops as TreeLoops;
  return {
    loops: opened,
    buffer,
    take(bytes) {
      const size = Math.ceil(Math.max(1, bytes) / alignedBytes) * alignedBytes;
      if (size > chunk.end - chunk.at) {
        const { byteOffset: at, length } = take(Math.max(size, chunkBytes));
        chunk = { at, end: at + length };
      }
      const { at } = chunk;
      chunk = { ...chunk, at: at + size };
      return at;
    },
    [Symbol.dispose]() {
      releaseMemory(pieces.splice(0));
    },
  };
}

/**
 * The columns of bytes that conditions are looked up in. A condition holds for a row where its column's byte, as a
 * signed number, is not above its rank.
 */
interface Columns {
  readonly ranked: readonly RankedFeature[];
  readonly sets: readonly SetColumn[];
  readonly count: number;
  readonly conditions: ReadonlyMap<number, Condition>;
}

interface RankedFeature {
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
interface SetColumn {
  readonly column: number;
  readonly feature: number;
  /** The set's members, ascending, each once. */
  readonly members: Float64Array;
  readonly nanIsTrue: boolean;
}

interface Condition {
  readonly column: number;
  /** -128 to 127. */
  readonly rank: number;
  /** The node's own is the opposite. */
  readonly isOpposite: boolean;
}

const ranksPerColumn = 255;

type Test = { readonly isOpposite: boolean; readonly nanIsTrue: boolean } & (
  | { readonly kind: "upTo"; readonly threshold: number }
  | { readonly kind: "member"; readonly members: Float64Array }
);

/** @param isDouble what the rows hold, and what thresholds are compared as */
function columnsOf({ nodes }: Pick<Ensemble, "nodes">, isDouble: boolean): Columns {
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
  if (!isExact(threshold, isDouble)) {
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
