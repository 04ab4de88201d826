import { randomOf } from "./random.js";
import type { Attribute, TreeNodeModel } from "./tree-models.js";

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
  weights: { target: number; value: number }[];
}

const modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"];
const transforms = ["NONE", "LOGISTIC", "SOFTMAX"];

export function randomTrees(seed: number): RandomTrees {
  const draw = randomOf(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(draw() * list.length)] as T;
  const upTo = (most: number): number => 1 + Math.floor(draw() * most);
  const kind = pick(["TreeEnsembleClassifier", "TreeEnsembleRegressor"]);
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
    modeOf: () => oneMode ?? pick(modes),
    hasMissing: draw() < 0.5,
    oneTarget: pick([-1, -1, 0, targets - 1]),
    sparse: draw() < 0.4,
    onlyPositive: draw() < 0.4,
    round,
  };
  const trees = Array.from({ length: upTo(6) }, () => growTree(options));
  const transform = pick(transforms);
  const about = `seed ${seed}: ${kind} ${element === 1 ? "float" : "double"}, ${trees.length} trees, ${targets} targets, ${transform}`;
  const thresholds = trees.flatMap(({ nodes }) => nodes.map((node) => node.threshold));
  const attributes = listsOfNodes(trees, { kind, draw, targets, transform, element });
  const outputs = kind === "TreeEnsembleClassifier" ? ["label", "scores"] : ["scores"];
  const opset = element === 11 ? 3 : pick([1, 3]);
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
      weights: [],
    };
    nodes.push(node);
    if (isLeaf) {
      const target = options.oneTarget === -1 ? Math.floor(draw() * targets) : options.oneTarget;
      const all = !options.sparse && options.oneTarget === -1;
      for (const own of all ? Array.from({ length: targets }, (_, index) => index) : [target]) {
        const value = round(draw() < 0.1 ? 0 : draw() * 2 - (options.onlyPositive ? 0 : 1));
        node.weights.push({ target: own, value });
      }
    } else {
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
  readonly kind: string;
  readonly draw: Draw;
  readonly targets: number;
  readonly transform: string;
  readonly element: 1 | 11;
}

function listsOfNodes(
  trees: readonly Tree[],
  { kind, draw, targets, transform, element }: ListOptions,
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
    ...(isClassifier ? labels : { n_targets: { integer: targets }, aggregate_function: { text: "SUM" } }),
  };
}
