import type { Columns, Condition } from "./columns.js";
import { type Ensemble, Unsupported } from "./ensemble.js";
import type { TreeMemory } from "./tree-loops.js";

/** The addresses of the trees that `scoreBlock` runs. */
export interface TreeTable {
  readonly start: number;
  readonly end: number;
}

export interface TableOptions {
  readonly ensemble: Ensemble;
  readonly columns: Columns;
  readonly memory: TreeMemory;
  /** The address of each column. */
  readonly columnAt: (column: number) => number;
  /** The address of each target's scores. */
  readonly scoresAt: (target: number) => number;
  readonly isDouble: boolean;
}

/** Trees with more leaves are walked: evaluating all of their conditions takes longer (docs/decisions/models-and-engines.md). */
const mostLeavesByBits = 256;
const leavesPerGroup = 8;
const wordBytes = 4;
const treeWords = 4;
const targetWords = 2;
const entryBytes = 8;
const nodeBytes = 16;

export function writeTables(options: TableOptions): TreeTable {
  const { ensemble, memory } = options;
  const trees = ensemble.roots.map((root) => flatten(ensemble, options.columns, root));
  const targets = trees.map(({ leaves }) => targetsOf(ensemble, leaves));
  const words = targets.reduce((sum, found) => sum + treeWords + found.length * targetWords, 0);
  const start = memory.take(words * wordBytes);
  const view = new DataView(memory.buffer);
  let at = start;
  const put = (...numbers: number[]): void => {
    for (const number of numbers) {
      view.setInt32(at, number, true);
      at += wordBytes;
    }
  };
  for (const [index, tree] of trees.entries()) {
    const byBits = tree.leaves.length <= mostLeavesByBits;
    const groups = byBits ? Math.ceil(tree.leaves.length / leavesPerGroup) : 0;
    const body = byBits ? writeEntries(options, tree, groups) : writeNodes(options, tree);
    const found = targets[index] ?? [];
    put(groups, tree.depth, body, found.length);
    for (const target of found) {
      put(options.scoresAt(target), writeLeaves(options, tree.leaves, target));
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
function writeEntries({ memory, columnAt }: TableOptions, { nodes }: FlatTree, groups: number): number {
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
function writeNodes({ memory, columnAt }: TableOptions, { nodes, leaves }: FlatTree): number {
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
  const found = new Set<number>();
  for (const leaf of leaves) {
    const own = weights.targets.subarray(weights.starts[leaf], weights.starts[leaf + 1]);
    if (new Set(own).size !== own.length || own.some((target) => target < 0 || target >= targets)) {
      throw new Unsupported("a leaf whose weights are of one target, or of none that there is");
    }
    for (const target of own) {
      found.add(target);
    }
  }
  return [...found].toSorted((a, b) => a - b);
}

/** Returns the weight that changes no score. It marks leaves without a weight for a target. */
export function neutralOf({ aggregate }: Pick<Ensemble, "aggregate">): number {
  return aggregate === "MIN" ? Number.POSITIVE_INFINITY : aggregate === "MAX" ? Number.NEGATIVE_INFINITY : -0;
}

function writeLeaves({ ensemble, memory, isDouble }: TableOptions, leaves: readonly number[], target: number): number {
  const { weights } = ensemble;
  const start = memory.take(leaves.length * (isDouble ? 8 : 4));
  const values = isDouble
    ? new Float64Array(memory.buffer, start, leaves.length)
    : new Float32Array(memory.buffer, start, leaves.length);
  values.fill(neutralOf(ensemble));
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
