import { randomOf } from "./random.js";
import type { Attribute, TreeNodeModel } from "./tree-models.js";

/** A random ensemble, and values that its features may have. */
export interface RandomTrees {
  readonly model: TreeNodeModel;
  readonly features: number;
  /** What it compares with. */
  readonly thresholds: readonly number[];
  readonly about: string;
}

type Draw = () => number;

interface Tree {
  readonly nodes: TreeNode[];
}

interface TreeNode {
  mode: string;
  feature: number;
  threshold: number;
  missing: boolean;
  trueChild: number;
  falseChild: number;
  members: number[];
  weights: { target: number; value: number }[];
}

const modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"];
const transforms = ["NONE", "LOGISTIC", "SOFTMAX"];
const aggregates = ["SUM", "AVERAGE"];

export function randomTrees(seed: number): RandomTrees {
  const draw = randomOf(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(draw() * list.length)] as T;
  const upTo = (most: number): number => 1 + Math.floor(draw() * most);
  const kind = pick(["TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble"]);
  const element = draw() < 0.25 ? 11 : 1;
  const features = upTo(6);
  const targets = kind === "TreeEnsembleClassifier" ? 1 + upTo(4) : upTo(3);
  const round = element === 1 ? Math.fround : (value: number) => value;
  const pool = Array.from({ length: upTo(40) }, () =>
    round(pick([0, -0, 1, 2.5, 1e-40, draw() * 10 - 5, draw() * 10 - 5, draw() * 1e6])),
  );
  const oneMode = pick([undefined, "LEQ", "LEQ", "LT"]);
  const options = {
    draw,
    pool,
    features,
    targets,
    mostLeaves: pick([1, 2, 8, 9, 31, 70, 300]),
    modeOf: () => oneMode ?? pick(kind === "TreeEnsemble" ? [...modes, "MEMBER"] : modes),
    hasMissing: draw() < 0.5,
    oneTarget: pick([-1, -1, 0, targets - 1]),
    sparse: draw() < 0.4 && kind !== "TreeEnsemble",
    onlyPositive: draw() < 0.4,
    isV5: kind === "TreeEnsemble",
    round,
  };
  const trees = Array.from({ length: upTo(6) }, () => growTree(options));
  const transform = pick(transforms);
  const aggregate = pick(aggregates);
  const about = `seed ${seed}: ${kind} ${element === 1 ? "float" : "double"}, ${trees.length} trees, ${targets} targets, ${transform}, ${aggregate}`;
  const thresholds = trees.flatMap(({ nodes }) => nodes.flatMap((node) => [node.threshold, ...node.members]));
  const attributes =
    kind === "TreeEnsemble"
      ? listsOfGraph(trees, { targets, transform, aggregate, element })
      : listsOfNodes(trees, { kind, draw, targets, transform, aggregate, element });
  const outputs = kind === "TreeEnsembleClassifier" ? ["label", "scores"] : ["scores"];
  const opset = kind === "TreeEnsemble" ? 5 : element === 11 ? 3 : pick([1, 3]);
  return { model: { operator: kind, opset, attributes, element, outputs }, features, thresholds, about };
}

interface TreeOptions {
  readonly draw: Draw;
  readonly pool: readonly number[];
  readonly features: number;
  readonly targets: number;
  readonly mostLeaves: number;
  readonly modeOf: () => string;
  readonly hasMissing: boolean;
  readonly oneTarget: number;
  readonly sparse: boolean;
  readonly onlyPositive: boolean;
  readonly isV5: boolean;
  readonly round: (value: number) => number;
}

function growTree(options: TreeOptions): Tree {
  const { draw, pool, features, targets, mostLeaves, round } = options;
  const nodes: TreeNode[] = [];
  const add = (leaves: number): number => {
    const place = nodes.length;
    const pick = (): number => pool[Math.floor(draw() * pool.length)] ?? 0;
    const isLeaf = leaves <= 1;
    const node: TreeNode = {
      mode: isLeaf ? "LEAF" : options.modeOf(),
      feature: isLeaf ? 0 : Math.floor(draw() * features),
      threshold: isLeaf ? 0 : pick(),
      missing: options.hasMissing && draw() < 0.5,
      trueChild: 0,
      falseChild: 0,
      members: [],
      weights: [],
    };
    nodes.push(node);
    if (isLeaf) {
      const target = options.oneTarget === -1 ? Math.floor(draw() * targets) : options.oneTarget;
      const all = !options.isV5 && !options.sparse && options.oneTarget === -1;
      for (const own of all ? Array.from({ length: targets }, (_, index) => index) : [target]) {
        const value = round(draw() < 0.1 ? 0 : draw() * 2 - (options.onlyPositive ? 0 : 1));
        node.weights.push({ target: own, value });
      }
    } else {
      node.members =
        node.mode === "MEMBER"
          ? Array.from({ length: 1 + Math.floor(draw() * 20) }, () => Math.floor(draw() * 31))
          : [];
      const left = 1 + Math.floor(draw() * (leaves - 1));
      node.trueChild = add(left);
      node.falseChild = add(leaves - left);
    }
    return place;
  };
  add(1 + Math.floor(draw() * mostLeaves));
  return { nodes };
}

interface ListOptions {
  readonly targets: number;
  readonly transform: string;
  readonly aggregate: string;
  readonly element: 1 | 11;
}

function listsOfNodes(
  trees: readonly Tree[],
  { kind, draw, targets, transform, aggregate, element }: ListOptions & { readonly kind: string; readonly draw: Draw },
): Record<string, Attribute> {
  const isClassifier = kind === "TreeEnsembleClassifier";
  const prefix = isClassifier ? "class" : "target";
  const all = trees.flatMap(({ nodes }, tree) => nodes.map((node, id) => ({ ...node, tree, id })));
  const weights = all.flatMap(({ weights: own, tree, id }) => own.map((weight) => ({ ...weight, tree, id })));
  const numbers = (name: string, values: readonly number[]): Record<string, Attribute> =>
    element === 11 ? { [`${name}_as_tensor`]: { tensor: values, dataType: 11 } } : { [name]: { floats: values } };
  const bases = isClassifier ? (targets === 2 ? [0, 0, 1, 2] : [0, targets]) : [0, targets];
  const base = Array.from({ length: bases[Math.floor(draw() * bases.length)] ?? 0 }, () => Math.fround(draw() * 2 - 1));
  const labels: Record<string, Attribute> =
    draw() < 0.3
      ? { classlabels_strings: { texts: Array.from({ length: targets }, (_, index) => `klass ${index}é`) } }
      : {
          classlabels_int64s: {
            integers: Array.from({ length: targets }, (_, index) =>
              draw() < 0.2 ? -(2n ** 60n) - BigInt(index) : index + 3 * Math.floor(draw() * 2) * targets,
            ),
          },
        };
  return {
    nodes_treeids: { integers: all.map(({ tree }) => tree) },
    nodes_nodeids: { integers: all.map(({ id }) => id) },
    nodes_modes: { texts: all.map(({ mode }) => (mode === "LEAF" ? mode : `BRANCH_${mode}`)) },
    nodes_featureids: { integers: all.map(({ feature }) => feature) },
    ...numbers(
      "nodes_values",
      all.map(({ threshold }) => threshold),
    ),
    nodes_truenodeids: { integers: all.map(({ trueChild }) => trueChild) },
    nodes_falsenodeids: { integers: all.map(({ falseChild }) => falseChild) },
    ...(all.some(({ missing }) => missing)
      ? { nodes_missing_value_tracks_true: { integers: all.map(({ missing }) => (missing ? 1 : 0)) } }
      : {}),
    [`${prefix}_treeids`]: { integers: weights.map(({ tree }) => tree) },
    [`${prefix}_nodeids`]: { integers: weights.map(({ id }) => id) },
    [`${prefix}_ids`]: { integers: weights.map(({ target }) => target) },
    ...numbers(
      `${prefix}_weights`,
      weights.map(({ value }) => value),
    ),
    ...(base.length === 0 ? {} : numbers("base_values", base)),
    post_transform: { text: transform },
    ...(isClassifier ? labels : { n_targets: { integer: targets }, aggregate_function: { text: aggregate } }),
  };
}

function listsOfGraph(
  trees: readonly Tree[],
  { targets, transform, aggregate, element }: ListOptions,
): Record<string, Attribute> {
  const nodes: TreeNode[] = [];
  const leaves: TreeNode[] = [];
  const places = new Map<TreeNode, number>();
  const roots: number[] = [];
  for (const tree of trees) {
    const [root] = tree.nodes;
    if (root?.mode === "LEAF") {
      // A tree of one leaf is a node that leads to it either way.
      const node: TreeNode = { ...root, mode: "LEQ", trueChild: 0, falseChild: 0 };
      roots.push(nodes.length);
      places.set(root, leaves.length);
      leaves.push(root);
      tree.nodes[0] = node;
      tree.nodes.push(root);
      node.trueChild = 1;
      node.falseChild = 1;
      nodes.push(node);
    } else {
      roots.push(nodes.length);
      for (const node of tree.nodes) {
        const list = node.mode === "LEAF" ? leaves : nodes;
        places.set(node, list.length);
        list.push(node);
      }
    }
  }
  const treeOf = new Map(trees.flatMap((tree) => tree.nodes.map((node) => [node, tree] as const)));
  const child = (node: TreeNode, side: "trueChild" | "falseChild"): TreeNode =>
    treeOf.get(node)?.nodes[node[side]] as TreeNode;
  const children = (side: "trueChild" | "falseChild"): number[] =>
    nodes.map((node) => places.get(child(node, side)) ?? 0);
  const areLeaves = (side: "trueChild" | "falseChild"): number[] =>
    nodes.map((node) => (child(node, side).mode === "LEAF" ? 1 : 0));
  const names = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"];
  const members = nodes.flatMap(({ mode, members: own }) => (mode === "MEMBER" ? [...own, Number.NaN] : []));
  return {
    n_targets: { integer: targets },
    aggregate_function: { integer: ["AVERAGE", "SUM", "MIN", "MAX"].indexOf(aggregate) },
    post_transform: { integer: names.indexOf(transform) },
    tree_roots: { integers: roots },
    nodes_modes: { tensor: nodes.map(({ mode }) => [...modes, "MEMBER"].indexOf(mode)), dataType: 2 },
    nodes_featureids: { integers: nodes.map(({ feature }) => feature) },
    nodes_splits: { tensor: nodes.map(({ threshold }) => threshold), dataType: element },
    nodes_truenodeids: { integers: children("trueChild") },
    nodes_falsenodeids: { integers: children("falseChild") },
    nodes_trueleafs: { integers: areLeaves("trueChild") },
    nodes_falseleafs: { integers: areLeaves("falseChild") },
    ...(nodes.some(({ missing }) => missing)
      ? { nodes_missing_value_tracks_true: { integers: nodes.map(({ missing }) => (missing ? 1 : 0)) } }
      : {}),
    ...(members.length === 0 ? {} : { membership_values: { tensor: members, dataType: element } }),
    leaf_targetids: { integers: leaves.map(({ weights }) => weights[0]?.target ?? 0) },
    leaf_weights: { tensor: leaves.map(({ weights }) => weights[0]?.value ?? 0), dataType: element },
  };
}
