import { integerIn, tensorOf } from "../../onnx/attributes.js";
import { elementTypeOf, type OnnxGraph, type OnnxNode, valueOf, writeModelOf } from "../../onnx/graph.js";
import { type Ensemble, Unsupported } from "./ensemble.js";
import { isTreeNode, readEnsemble } from "./read-ensemble.js";

/** TensorProto.DataType. */
export const elements = { float: 1, int32: 6, int64: 7, string: 8, double: 11 } as const;

/** A model as nodes of trees, and what ONNX Runtime computes before and after them. */
export interface CutModel {
  readonly ensembles: readonly CutEnsemble[];
  /** Gives the inputs of ensembles that the model itself does not take; undefined: it takes all of them. */
  readonly before: ModelPart | undefined;
  /** Gives those outputs that are no ensemble's own; undefined: there are none. */
  readonly after: AfterPart | undefined;
  /** Outputs of the model that an ensemble gives. */
  readonly own: ReadonlyMap<string, OwnOutput>;
}

export interface CutEnsemble {
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
 * Cuts a model at its first nodes of trees: those whose inputs no other one gives.
 * @param wanted outputs of the model
 * @throws Unsupported where none of them can be compiled
 */
export function cutModel(graph: OnnxGraph, wanted: readonly string[]): CutModel {
  const producers = new Map<string, OnnxNode>();
  for (const node of graph.nodes) {
    for (const output of node.outputs) {
      producers.set(output, node);
    }
  }
  const cutting = { graph, producers };
  const needed = new Set(ancestors(cutting, wanted, new Map()).nodes);
  const ensembles = graph.nodes.filter((node) => needed.has(node) && isTreeNode(node)).flatMap(readable(cutting));
  if (ensembles.length === 0) {
    throw new Unsupported(reasonOf(graph));
  }
  requireLargeNodes(ensembles);
  const given = new Map<string, OwnOutput>();
  for (const [index, { node, ensemble }] of ensembles.entries()) {
    const [first = "", second = ""] = node.outputs;
    given.set(ensemble.classes === undefined ? first : second, { ensemble: index, kind: "values" });
    if (ensemble.classes !== undefined) {
      given.set(first, { ensemble: index, kind: "labels" });
    }
  }
  given.delete(""); // an output that the node leaves out
  const own = new Map<string, OwnOutput>();
  for (const name of wanted) {
    const found = ownOutputOf(cutting, name, { given, ensembles });
    if (found !== undefined) {
      own.set(name, found);
    }
  }
  const others = wanted.filter((name) => !own.has(name));
  return { ensembles, own, before: partBefore(cutting, ensembles), after: partAfter(cutting, others, given) };
}

interface Cutting {
  readonly graph: OnnxGraph;
  readonly producers: ReadonlyMap<string, OnnxNode>;
}

const fewNodes = 8;
const fewTrees = 4;

/**
 * Isolation forests come with each tree in a node of its own, and others behind each of them that take longer: compiled
 * trees would not make them faster.
 */
function requireLargeNodes(ensembles: readonly CutEnsemble[]): void {
  const trees = ensembles.reduce((sum, { ensemble }) => sum + ensemble.roots.length, 0);
  if (ensembles.length > fewNodes && trees < fewTrees * ensembles.length) {
    throw new Unsupported(`its ${trees} trees are in ${ensembles.length} nodes`);
  }
}

/** Why nothing can be compiled. */
function reasonOf(graph: OnnxGraph): string {
  const node = graph.nodes.find(isTreeNode);
  if (node === undefined) {
    return "it has no trees";
  }
  readEnsemble(node); // throws the reason
  return "its trees give nothing that is wanted";
}

function readable({ graph, producers }: Cutting): (node: OnnxNode) => CutEnsemble[] {
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

/** Nodes that tensors need, in the graph's order, up to those that are given; and inputs of the graph that they take. */
function ancestors(
  { graph, producers }: Cutting,
  tensors: readonly string[],
  given: ReadonlyMap<string, unknown>,
): { readonly nodes: readonly OnnxNode[]; readonly inputs: readonly string[]; readonly given: readonly string[] } {
  const nodes = new Set<OnnxNode>();
  const seen = new Set<string>(tensors);
  for (const name of seen) {
    const node = given.has(name) ? undefined : producers.get(name);
    if (node !== undefined) {
      nodes.add(node);
      for (const input of node.inputs) {
        seen.add(input);
      }
    }
  }
  return {
    nodes: graph.nodes.filter((node) => nodes.has(node)),
    inputs: graph.inputs.map(({ name }) => name).filter((name) => seen.has(name) && !given.has(name)),
    given: [...given.keys()].filter((name) => seen.has(name)),
  };
}

/** The ensemble's output that a tensor is, bit for bit: exporters put nodes behind trees that change nothing. */
function ownOutputOf(
  cutting: Cutting,
  name: string,
  { given, ensembles }: { readonly given: ReadonlyMap<string, OwnOutput>; readonly ensembles: readonly CutEnsemble[] },
): OwnOutput | undefined {
  const node = cutting.producers.get(name);
  if (given.has(name) || node === undefined || node.domain !== "") {
    return given.get(name);
  }
  const [first = "", second = ""] = node.inputs;
  const source = ownOutputOf(cutting, first, { given, ensembles });
  const cut = source && ensembles[source.ensemble];
  switch (node.operator) {
    case "Identity":
      return source;
    case "Mul":
      return source?.kind === "values" && isOne(cutting.graph, second) ? source : undefined;
    case "Cast":
      return source?.kind === "labels" &&
        cut?.ensemble.classes?.labels.kind === "int64" &&
        integerIn(node.attributes, "to") === elements.int64
        ? source
        : undefined;
    default:
      return undefined;
  }
}

function isOne(graph: OnnxGraph, name: string): boolean {
  const constant = graph.constants.find((one) => one.name === name);
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

function partBefore(cutting: Cutting, ensembles: readonly CutEnsemble[]): ModelPart | undefined {
  const outputs = [...new Set(ensembles.map(({ input }) => input))].filter((name) => cutting.producers.has(name));
  if (outputs.length === 0) {
    return undefined;
  }
  const { nodes, inputs } = ancestors(cutting, outputs, new Map());
  const taken = cutting.graph.inputs.filter(({ name }) => inputs.includes(name));
  const model = writeModelOf(cutting.graph, { nodes, inputs: taken, outputs: outputs.map((name) => valueOf(name)) });
  return { inputs, outputs, model };
}

function partAfter(
  cutting: Cutting,
  outputs: readonly string[],
  given: ReadonlyMap<string, OwnOutput>,
): AfterPart | undefined {
  if (outputs.length === 0) {
    return undefined;
  }
  const { graph } = cutting;
  const found = ancestors(cutting, outputs, given);
  const taken = graph.inputs.filter(({ name }) => found.inputs.includes(name));
  const from = new Map([...given].filter(([name]) => found.given.includes(name)));
  return {
    inputs: found.inputs,
    outputs,
    from,
    modelFor: (elementOf) =>
      writeModelOf(graph, {
        nodes: found.nodes,
        inputs: [...taken, ...[...from].map(([name, own]) => valueOf(name, elementOf(own)))],
        outputs: graph.outputs.filter(({ name }) => outputs.includes(name)),
      }),
  };
}
