import { integerIn, tensorOf } from "../../onnx/attributes.js";
import { elementTypeOf, type OnnxGraph, type OnnxNode, valueOf, writeModelOf } from "../../onnx/graph.js";
import { type Ensemble, Unsupported } from "./ensemble.js";
import { isTreeNode, readEnsemble } from "./read-ensemble.js";

/** TensorProto.DataType. */
export const elements = { float: 1, int32: 6, int64: 7, string: 8, double: 11 } as const;

/** A model as nodes of trees, and what ONNX Runtime computes before and after them. */
export interface PartitionedModel {
  readonly ensembles: readonly PartitionedEnsemble[];
  /** Gives the inputs of ensembles that the model itself does not take; undefined: it takes all of them. */
  readonly before: ModelPart | undefined;
  /** Gives those outputs that are no ensemble's own; undefined: there are none. */
  readonly after: AfterPart | undefined;
  /** Outputs of the model that an ensemble gives. */
  readonly own: ReadonlyMap<string, OwnOutput>;
}

export interface PartitionedEnsemble {
  readonly ensemble: Ensemble;
  readonly node: OnnxNode;
  readonly input: string;
  /** TensorProto.DataType of the input; undefined: `before` computes the input, and its type is known from that. */
  readonly element: number | undefined;
}

export interface OwnOutput {
  readonly ensemble: number;
  readonly kind: "labels" | "values";
}

interface ModelPart {
  /** The model's inputs that this part takes. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly model: Uint8Array;
}

/** The part behind the ensembles. Its model depends on whether the ensembles give doubles. */
interface AfterPart extends Omit<ModelPart, "model"> {
  /** Tensors of ensembles that it takes. */
  readonly from: ReadonlyMap<string, OwnOutput>;
  readonly modelFor: (elementOf: (own: OwnOutput) => number) => Uint8Array;
}

/**
 * Partitions a model at its first tree nodes: those whose inputs no other tree node gives.
 * @param wanted outputs of the model
 * @throws Unsupported where none of them can be compiled
 */
export function partitionModel(graph: OnnxGraph, wanted: readonly string[]): PartitionedModel {
  const producers = new Map<string, OnnxNode>();
  for (const node of graph.nodes) {
    for (const output of node.outputs) {
      producers.set(output, node);
    }
  }
  const source = { graph, producers };
  const needed = new Set(ancestors(source, wanted, new Map()).nodes);
  const ensembles = graph.nodes.filter((node) => needed.has(node) && isTreeNode(node)).flatMap(readable(source));
  if (ensembles.length === 0) {
    throw new Unsupported(reasonOf(graph));
  }
  requireLargeNodes(ensembles);
  const treeOutputs = new Map<string, OwnOutput>();
  for (const [index, { node, ensemble }] of ensembles.entries()) {
    const [first = "", second = ""] = node.outputs;
    treeOutputs.set(ensemble.classes === undefined ? first : second, { ensemble: index, kind: "values" });
    if (ensemble.classes !== undefined) {
      treeOutputs.set(first, { ensemble: index, kind: "labels" });
    }
  }
  treeOutputs.delete(""); // an output that the node leaves out
  const own = new Map<string, OwnOutput>();
  for (const name of wanted) {
    const output = ownOutputOf(source, name, { treeOutputs, ensembles });
    if (output !== undefined) {
      own.set(name, output);
    }
  }
  const others = wanted.filter((name) => !own.has(name));
  return { ensembles, own, before: partBefore(source, ensembles), after: partAfter(source, others, treeOutputs) };
}

interface ModelGraph {
  readonly graph: OnnxGraph;
  readonly producers: ReadonlyMap<string, OnnxNode>;
}

const fewNodes = 8;
const fewTrees = 4;

/**
 * Isolation forests come with each tree in a node of its own, and others behind each of them that take longer: compiled
 * trees would not make them faster.
 */
function requireLargeNodes(ensembles: readonly PartitionedEnsemble[]): void {
  const trees = ensembles.reduce((sum, { ensemble }) => sum + ensemble.roots.length, 0);
  if (ensembles.length > fewNodes && trees < fewTrees * ensembles.length) {
    throw new Unsupported(`its ${trees} trees are in ${ensembles.length} nodes`);
  }
}

function reasonOf(graph: OnnxGraph): string {
  const node = graph.nodes.find(isTreeNode);
  if (node === undefined) {
    return "it has no trees";
  }
  readEnsemble(node); // throws the reason
  return "its trees give nothing that is wanted";
}

function readable({ graph, producers }: ModelGraph): (node: OnnxNode) => PartitionedEnsemble[] {
  return (node) => {
    const [input = ""] = node.inputs;
    if (ancestors({ graph, producers }, [input], new Map()).nodes.some(isTreeNode)) {
      return [];
    }
    const value = producers.has(input) ? undefined : graph.inputs.find(({ name }) => name === input);
    try {
      const ensemble = readEnsemble(node);
      return [{ ensemble, node, input, element: value && elementTypeOf(value.bytes) }];
    } catch {
      return []; // ONNX Runtime computes it
    }
  };
}

/** Nodes that tensors need, in the graph's order, up to what trees give; and inputs of the graph that they take. */
function ancestors(
  { graph, producers }: ModelGraph,
  tensors: readonly string[],
  treeOutputs: ReadonlyMap<string, unknown>,
): {
  readonly nodes: readonly OnnxNode[];
  readonly inputs: readonly string[];
  readonly treeOutputs: readonly string[];
} {
  const nodes = new Set<OnnxNode>();
  const seen = new Set<string>(tensors);
  for (const name of seen) {
    const node = treeOutputs.has(name) ? undefined : producers.get(name);
    if (node !== undefined) {
      nodes.add(node);
      for (const input of node.inputs) {
        seen.add(input);
      }
    }
  }
  return {
    nodes: graph.nodes.filter((node) => nodes.has(node)),
    inputs: graph.inputs.map(({ name }) => name).filter((name) => seen.has(name) && !treeOutputs.has(name)),
    treeOutputs: [...treeOutputs.keys()].filter((name) => seen.has(name)),
  };
}

/** The ensemble's output that a tensor is, bit for bit: exporters put nodes behind trees that change nothing. */
function ownOutputOf(
  model: ModelGraph,
  name: string,
  {
    treeOutputs,
    ensembles,
  }: { readonly treeOutputs: ReadonlyMap<string, OwnOutput>; readonly ensembles: readonly PartitionedEnsemble[] },
): OwnOutput | undefined {
  const node = model.producers.get(name);
  if (treeOutputs.has(name) || node === undefined || node.domain !== "") {
    return treeOutputs.get(name);
  }
  const [first = "", second = ""] = node.inputs;
  const source = ownOutputOf(model, first, { treeOutputs, ensembles });
  const ensemble = source && ensembles[source.ensemble];
  switch (node.operator) {
    case "Identity":
      return source;
    case "Mul":
      return source?.kind === "values" && isOne(model.graph, second) ? source : undefined;
    case "Cast":
      return source?.kind === "labels" &&
        ensemble?.ensemble.classes?.labels.kind === "int64" &&
        integerIn(node.attributes, "to") === elements.int64
        ? source
        : undefined;
    default:
      return undefined;
  }
}

function isOne(graph: OnnxGraph, name: string): boolean {
  const constant = graph.constants.find((candidate) => candidate.name === name);
  if (constant === undefined) {
    return false;
  }
  try {
    const { dataType, values } = tensorOf(constant.bytes);
    return dataType === elements.float && values.length === 1 && values[0] === 1;
  } catch {
    return false;
  }
}

function partBefore(source: ModelGraph, ensembles: readonly PartitionedEnsemble[]): ModelPart | undefined {
  const outputs = [...new Set(ensembles.map(({ input }) => input))].filter((name) => source.producers.has(name));
  if (outputs.length === 0) {
    return undefined;
  }
  const { nodes, inputs } = ancestors(source, outputs, new Map());
  const taken = source.graph.inputs.filter(({ name }) => inputs.includes(name));
  const model = writeModelOf(source.graph, { nodes, inputs: taken, outputs: outputs.map((name) => valueOf(name)) });
  return { inputs, outputs, model };
}

function partAfter(
  source: ModelGraph,
  outputs: readonly string[],
  treeOutputs: ReadonlyMap<string, OwnOutput>,
): AfterPart | undefined {
  if (outputs.length === 0) {
    return undefined;
  }
  const { graph } = source;
  const needed = ancestors(source, outputs, treeOutputs);
  const taken = graph.inputs.filter(({ name }) => needed.inputs.includes(name));
  const from = new Map([...treeOutputs].filter(([name]) => needed.treeOutputs.includes(name)));
  return {
    inputs: needed.inputs,
    outputs,
    from,
    modelFor: (elementOf) =>
      writeModelOf(graph, {
        nodes: needed.nodes,
        inputs: [...taken, ...[...from].map(([name, own]) => valueOf(name, elementOf(own)))],
        outputs: graph.outputs.filter(({ name }) => outputs.includes(name)),
      }),
  };
}
