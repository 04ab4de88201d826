import {
  type Attributes,
  attributeText as textIn,
  floatsIn,
  integerIn,
  integersIn,
  longsIn,
  type OnnxNode,
  tensorIn,
  textsIn,
} from "../file/graph.js";

/** What a node of trees computes, as ONNX Runtime understands its attributes (tree_ensemble_common.h). */
export interface Ensemble {
  readonly nodes: TreeNodes;
  /** The first node of each tree, in the order in which ONNX Runtime adds them up. */
  readonly roots: readonly number[];
  readonly weights: LeafWeights;
  /** Targets, or classes. */
  readonly targets: number;
  readonly transform: Transform;
  /** Base values that are added to the scores: none, or one for each target; one also for two classes. */
  readonly base: Float64Array;
  readonly classes: Classes | undefined;
}

/** Those that exporters write: with others, ONNX Runtime computes the trees. */
export type Transform = "NONE" | "LOGISTIC" | "SOFTMAX";

/** The nodes of all trees, by their place in the model. Where a node's condition holds, its true child comes next. */
export interface TreeNodes {
  readonly modes: readonly NodeMode[];
  readonly features: Int32Array;
  readonly thresholds: Float64Array;
  /** 1: NaN counts as true. */
  readonly missingTrue: Uint8Array;
  readonly trueChildren: Int32Array;
  readonly falseChildren: Int32Array;
  /** By node of mode EQ: the values of which any will do; others have their threshold alone. */
  readonly members: ReadonlyMap<number, Float64Array>;
}

type NodeMode = (typeof nodeModes)[number];
const nodeModes = ["LEAF", "LEQ", "LT", "GTE", "GT", "EQ", "NEQ"] as const;

/** What leaves add: those of node i are [starts[i], starts[i + 1]). */
interface LeafWeights {
  readonly starts: Int32Array;
  readonly targets: Int32Array;
  readonly values: Float64Array;
}

export interface Classes {
  readonly labels:
    | { readonly kind: "int64"; readonly values: BigInt64Array }
    | { readonly kind: "string"; readonly values: readonly string[] };
  /** Whether there are two classes, and the leaves have weights of one of them only. */
  readonly binary: boolean;
  readonly allPositive: boolean;
}

/** The trees of a model cannot be compiled, or compiled trees cannot score these rows. */
export class Unsupported extends Error {}

/** Operators of domain ai.onnx.ml. No exporter that was tried writes TreeEnsemble, of version 5. */
const treeOperators = new Set(["TreeEnsembleClassifier", "TreeEnsembleRegressor"]);
const transforms: readonly Transform[] = ["NONE", "LOGISTIC", "SOFTMAX"];

export function isTreeNode({ operator, domain }: Pick<OnnxNode, "operator" | "domain">): boolean {
  return domain === "ai.onnx.ml" && treeOperators.has(operator);
}

/**
 * Reads a node of trees, of ai.onnx.ml 1 and 3.
 * @throws Unsupported, RangeError, TypeError for what ONNX Runtime refuses, or what is not known to be computed as there
 */
export function readEnsemble({ operator, attributes }: OnnxNode): Ensemble {
  const isClassifier = operator === "TreeEnsembleClassifier";
  const prefix = isClassifier ? "class" : "target";
  const { nodes, roots, placeOf } = readNodes(attributes);
  const weightIds = integersIn(attributes, `${prefix}_ids`);
  const values = numbersIn(attributes, `${prefix}_weights`);
  const weights = leafWeights(nodes, {
    nodeOf: placesOf(attributes, prefix, placeOf),
    targets: weightIds,
    values,
  });
  const classes = isClassifier ? readClasses(attributes, weightIds, values) : undefined;
  const targets = classes === undefined ? (integerIn(attributes, "n_targets") ?? 0) : classes.labels.values.length;
  const base = numbersIn(attributes, "base_values");
  if (classes === undefined ? ![0, targets].includes(base.length) : targets < 2) {
    throw new Unsupported(`${base.length} base values, ${targets} targets`);
  }
  if (classes !== undefined && ![0, targets].includes(base.length) && !(targets === 2 && base.length === 1)) {
    throw new Unsupported(`${base.length} base values, ${targets} classes`);
  }
  const aggregate = textIn(attributes, "aggregate_function") ?? "SUM";
  const said = textIn(attributes, "post_transform") ?? "NONE";
  const transform = transforms.find((known) => known === said);
  if (aggregate !== "SUM" || transform === undefined) {
    throw new Unsupported(`aggregate function ${aggregate}, post transform ${said}`);
  }
  const merged = mergeSets(nodes);
  requireForest(merged, roots);
  return { nodes: merged, roots, weights, targets, transform, base, classes };
}

/** Floats, or since opset 3 a tensor. */
function numbersIn(attributes: Attributes, name: string): Float64Array {
  const floats = floatsIn(attributes, name);
  const tensor = tensorIn(attributes, `${name}_as_tensor`);
  if (tensor !== undefined && floats.length > 0) {
    throw new Unsupported(`${name} are there twice`);
  }
  return tensor === undefined ? floats : tensor.values;
}

type PlaceOf = (tree: number, node: number) => number;

function readNodes(attributes: Attributes): {
  readonly nodes: Omit<TreeNodes, "members">;
  readonly roots: readonly number[];
  readonly placeOf: PlaceOf;
} {
  const trees = integersIn(attributes, "nodes_treeids");
  const ids = integersIn(attributes, "nodes_nodeids");
  const modes = textsIn(attributes, "nodes_modes").map(modeOf);
  const features = integersIn(attributes, "nodes_featureids");
  const thresholds = numbersIn(attributes, "nodes_values");
  const trueIds = integersIn(attributes, "nodes_truenodeids");
  const falseIds = integersIn(attributes, "nodes_falsenodeids");
  const missing = integersIn(attributes, "nodes_missing_value_tracks_true");
  const count = trees.length;
  for (const list of [ids, modes, features, thresholds, trueIds, falseIds]) {
    requireLength(list, count);
  }
  requireLength(missing, missing.length === 0 ? 0 : count);
  const { roots, placeOf } = numberNodes(trees, ids);
  const trueChildren = new Int32Array(count);
  const falseChildren = new Int32Array(count);
  for (const [node, mode] of modes.entries()) {
    if (mode !== "LEAF") {
      trueChildren[node] = placeOf(trees[node] ?? 0, trueIds[node] ?? 0);
      falseChildren[node] = placeOf(trees[node] ?? 0, falseIds[node] ?? 0);
    }
  }
  const nodes = {
    modes,
    features: Int32Array.from(features),
    thresholds,
    missingTrue: Uint8Array.from({ length: count }, (_, node) => (missing[node] === 1 ? 1 : 0)),
    trueChildren,
    falseChildren,
  };
  return { nodes, roots, placeOf };
}

function requireLength(list: { readonly length: number }, length: number): void {
  if (list.length !== length) {
    throw new Unsupported(`lists of ${list.length} and of ${length} nodes`);
  }
}

/** Nodes of one tree come one after the other, its root first. */
function numberNodes(trees: Float64Array, ids: Float64Array): { readonly roots: number[]; readonly placeOf: PlaceOf } {
  const roots: number[] = [];
  const byTree = new Map<number, Map<number, number>>();
  for (const [place, tree] of trees.entries()) {
    let places = byTree.get(tree);
    if (places === undefined) {
      places = new Map();
      byTree.set(tree, places);
      roots.push(place);
    } else if (trees[place - 1] !== tree) {
      throw new Unsupported("the nodes of a tree are not consecutive");
    }
    places.set(ids[place] ?? 0, place);
  }
  const placeOf: PlaceOf = (tree, node) => {
    const place = byTree.get(tree)?.get(node);
    if (place === undefined) {
      throw new Unsupported(`no node ${node} in tree ${tree}`);
    }
    return place;
  };
  const known = [...byTree.values()].reduce((sum, { size }) => sum + size, 0);
  if (known !== ids.length) {
    throw new Unsupported("two nodes of a tree have the same number");
  }
  return { roots, placeOf };
}

function modeOf(text: string): NodeMode {
  const mode = nodeModes.find((known) => text === (known === "LEAF" ? known : `BRANCH_${known}`));
  if (mode === undefined) {
    throw new Unsupported(`node mode ${text}`);
  }
  return mode;
}

function placesOf(attributes: Attributes, prefix: "class" | "target", placeOf: PlaceOf): Int32Array {
  const trees = integersIn(attributes, `${prefix}_treeids`);
  const ids = integersIn(attributes, `${prefix}_nodeids`);
  requireLength(ids, trees.length);
  return Int32Array.from(ids, (id, index) => placeOf(trees[index] ?? 0, id));
}

interface WeightList {
  readonly nodeOf: Int32Array;
  readonly targets: Float64Array;
  readonly values: Float64Array;
}

/** The weights of each leaf, in their order. Those of other nodes count for nothing. @throws Unsupported */
function leafWeights({ modes }: Pick<TreeNodes, "modes">, list: WeightList): LeafWeights {
  const { nodeOf, targets, values } = list;
  requireLength(targets, nodeOf.length);
  requireLength(values, nodeOf.length);
  const starts = new Int32Array(modes.length + 1);
  for (const node of nodeOf) {
    starts[node + 1] = (starts[node + 1] ?? 0) + (modes[node] === "LEAF" ? 1 : 0);
  }
  for (const [node, mode] of modes.entries()) {
    if (mode === "LEAF" && starts[node + 1] === 0) {
      throw new Unsupported("a leaf has no weight");
    }
    starts[node + 1] = (starts[node + 1] ?? 0) + (starts[node] ?? 0);
  }
  const next = starts.slice();
  const sorted = { targets: new Int32Array(starts.at(-1) ?? 0), values: new Float64Array(starts.at(-1) ?? 0) };
  for (const [index, node] of nodeOf.entries()) {
    if (modes[node] === "LEAF") {
      const place = next[node] ?? 0;
      next[node] = place + 1;
      sorted.targets[place] = targets[index] ?? 0;
      sorted.values[place] = values[index] ?? 0;
    }
  }
  return { starts, ...sorted };
}

function readClasses(attributes: Attributes, ids: Float64Array, weights: Float64Array): Classes {
  const texts = textsIn(attributes, "classlabels_strings");
  const longs = longsIn(attributes, "classlabels_int64s");
  if (texts.length > 0 === longs.length > 0) {
    throw new Unsupported("no labels, or both kinds of them");
  }
  const binary = texts.length + longs.length === 2 && new Set(ids).size === 1;
  // Of two classes that both have weights, ONNX Runtime returns the label 0 or 1, even if the classes have other
  // labels.
  const own = longs.length === 2 && !binary ? [0n, 1n] : longs;
  return {
    labels: texts.length > 0 ? { kind: "string", values: texts } : { kind: "int64", values: BigInt64Array.from(own) },
    binary,
    allPositive: !weights.some((weight) => weight < 0),
  };
}

/**
 * Sets as one node: exporters write "is one of" as nodes of mode EQ, each the false child of the one before, that share
 * their true child. The nodes that were merged are reached no more, and become leaves.
 */
function mergeSets(nodes: Omit<TreeNodes, "members">): TreeNodes {
  const modes: NodeMode[] = [...nodes.modes];
  const falseChildren = nodes.falseChildren.slice();
  const members = new Map<number, Float64Array>();
  const follows = (node: number, next: number): boolean =>
    modes[next] === "EQ" &&
    nodes.features[next] === nodes.features[node] &&
    nodes.trueChildren[next] === nodes.trueChildren[node] &&
    nodes.missingTrue[next] === nodes.missingTrue[node];
  for (const node of modes.keys()) {
    const merged: number[] = [];
    while (modes[node] === "EQ" && follows(node, falseChildren[node] ?? 0)) {
      const next = falseChildren[node] ?? 0;
      merged.push(nodes.thresholds[next] ?? Number.NaN);
      modes[next] = "LEAF";
      falseChildren[node] = falseChildren[next] ?? 0;
    }
    if (merged.length > 0) {
      members.set(node, Float64Array.of(nodes.thresholds[node] ?? Number.NaN, ...merged));
    }
  }
  return { ...nodes, modes, falseChildren, members };
}

/** @throws Unsupported where two nodes have the same child */
function requireForest(nodes: TreeNodes, roots: readonly number[]): void {
  const seen = new Uint8Array(nodes.modes.length);
  const waiting: number[] = [];
  for (const root of roots) {
    waiting.push(root);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      if (seen[node] !== 0) {
        throw new Unsupported("two nodes have the same child");
      }
      seen[node] = 1;
      if (nodes.modes[node] !== "LEAF") {
        waiting.push(nodes.falseChildren[node] ?? 0, nodes.trueChildren[node] ?? 0);
      }
    }
  }
}
