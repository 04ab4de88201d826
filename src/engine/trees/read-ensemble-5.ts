import { type Attributes, integerIn, integersIn, tensorIn } from "../../onnx/attributes.js";
import {
  type Aggregate,
  type Ensemble,
  type NodeMode,
  type Transform,
  type TreeNodes,
  Unsupported,
} from "./ensemble.js";

const modes: readonly NodeMode[] = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"];
const aggregates: readonly Aggregate[] = ["AVERAGE", "SUM", "MIN", "MAX"];
/** Post transforms in the order of ONNX Runtime's numbers. */
const transforms: readonly Transform[] = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"];

/** Reads the attributes of TreeEnsemble (ai.onnx.ml 5), whose nodes and leaves have lists of their own. */
export function readGraphOfTrees(attributes: Attributes): Ensemble {
  const inner = readInner(attributes);
  const count = inner.modes.length;
  const leafTargets = integersIn(attributes, "leaf_targetids");
  const leafValues = tensorValues(attributes, "leaf_weights");
  // Leaves are numbered after all other nodes.
  const total = count + leafTargets.length;
  const childrenOf = (which: "true" | "false"): Int32Array => {
    const ids = integersIn(attributes, `nodes_${which}nodeids`);
    const leaves = integersIn(attributes, `nodes_${which}leafs`);
    return Int32Array.from({ length: total }, (_, node) => {
      const child = (ids[node] ?? 0) + (leaves[node] === 0 ? 0 : count);
      if (node < count && child >= (leaves[node] === 0 ? count : total)) {
        throw new Unsupported(`no child ${child}`);
      }
      return node < count ? child : 0;
    });
  };
  const [trueChildren, falseChildren] = [childrenOf("true"), childrenOf("false")];
  const nodes: TreeNodes = {
    ...inner,
    modes: [...inner.modes, ...Array.from(leafTargets, () => "LEAF" as const)],
    trueChildren,
    falseChildren,
  };
  const targets = integerIn(attributes, "n_targets") ?? 0;
  const aggregate = aggregates[integerIn(attributes, "aggregate_function") ?? 1];
  const transform = transforms[integerIn(attributes, "post_transform") ?? 0];
  if (aggregate === undefined || transform === undefined || leafValues.length !== leafTargets.length) {
    throw new Unsupported("an aggregate function, a post transform or leaves that are not known");
  }
  // A tree of one leaf is a node whose children are this leaf.
  const roots = Array.from(integersIn(attributes, "tree_roots"), (root) =>
    trueChildren[root] === falseChildren[root] && (trueChildren[root] ?? 0) >= count ? (trueChildren[root] ?? 0) : root,
  );
  const starts = Int32Array.from({ length: total + 1 }, (_, node) => Math.max(0, node - count));
  const weights = { starts, targets: Int32Array.from(leafTargets), values: leafValues };
  return { nodes, roots, weights, targets, aggregate, transform, base: new Float64Array(), classes: undefined };
}

function readInner(
  attributes: Attributes,
): Pick<TreeNodes, "modes" | "features" | "thresholds" | "missingTrue" | "members"> {
  const numbers = tensorValues(attributes, "nodes_modes");
  const found = Array.from(numbers, (number) => {
    const mode = modes[number];
    if (mode === undefined) {
      throw new Unsupported(`node mode ${number}`);
    }
    return mode;
  });
  const features = integersIn(attributes, "nodes_featureids");
  const thresholds = tensorValues(attributes, "nodes_splits");
  const missing = integersIn(attributes, "nodes_missing_value_tracks_true");
  if (features.length !== found.length || thresholds.length !== found.length) {
    throw new Unsupported("lists of nodes of several lengths");
  }
  return {
    modes: found,
    features: Int32Array.from(features),
    thresholds,
    missingTrue: Uint8Array.from(found, (_, node) => (missing[node] === 1 ? 1 : 0)),
    members: membersOf(found, tensorIn(attributes, "membership_values")?.values ?? new Float64Array()),
  };
}

/** The size limit of sets whose members ONNX Runtime compares one by one, and the limit of their members. */
const mostMembers = 31;

/** Sets of one list, each ended by NaN, of the nodes of mode MEMBER in their order. */
function membersOf(found: readonly NodeMode[], values: Float64Array): Map<number, Float64Array> {
  const members = new Map<number, Float64Array>();
  let at = 0;
  for (const [node, mode] of found.entries()) {
    if (mode === "MEMBER") {
      let end = at;
      while (end < values.length && !Number.isNaN(values[end])) {
        end += 1;
      }
      const set = values.subarray(at, end);
      if (
        set.length === 0 ||
        set.length > mostMembers ||
        set.some((member) => !(member >= 0 && member < mostMembers))
      ) {
        throw new Unsupported("a set that ONNX Runtime looks numbers up in without their fractions");
      }
      members.set(node, set);
      at = end + 1;
    }
  }
  return members;
}

function tensorValues(attributes: Attributes, name: string): Float64Array {
  const tensor = tensorIn(attributes, name);
  if (tensor === undefined) {
    throw new Unsupported(`no ${name}`);
  }
  return tensor.values;
}
