import type { NamedTensor, Tensor } from "../../columns/tensor.js";
import {
  elementTypeOf,
  integerIn,
  type OnnxGraph,
  type OnnxNode,
  readGraph,
  tensorOf,
  valueOf,
  writeModelOf,
} from "../file/graph.js";
import { assertNever } from "../../base/errors.js";
import { randomNumbers } from "../../base/sampling.js";
import type { OnnxSession } from "../onnx/session.js";
import type { EngineRequest } from "../engine.js";
import { boundOf, differenceOf, Mismatch } from "./compare-scores.js";
import { type CompiledOutput, type CompiledTrees, compileTrees, type RowType, type RowValues } from "./compiled.js";
import { type Ensemble, isTreeNode, readEnsemble, Unsupported } from "./ensemble.js";
import { neighbourOf } from "./scorer.js";

/** A model whose trees are compiled; ONNX Runtime computes the operators before and after them. */
export interface TreeModel {
  /** How far its scores may differ from ONNX Runtime's, relative to 1 or more. */
  readonly bound: number;
  /** Blocks the thread. @throws what the model fails with, Unsupported for inputs of other shapes */
  run(request: EngineRequest): Promise<Tensor[]>;
  close(): Promise<void>;
}

/** Opens a session of a part of the model in ONNX Runtime, with one thread. `names`: the part's inputs and outputs. */
export type OpenPart = (
  part: Uint8Array,
  names: { readonly inputs: readonly string[]; readonly outputs: readonly string[] },
) => Promise<OnnxSession>;

interface TreeModelOptions {
  /** A serialized ModelProto. */
  readonly model: Uint8Array;
  readonly wanted: readonly string[];
  readonly openPart: OpenPart;
}

/**
 * Compiles a model's trees and compares what they give, for rows made of their own thresholds, with ONNX Runtime.
 * @throws Unsupported, RangeError where they cannot be compiled, Mismatch
 */
export async function openTreeModel({ model, wanted, openPart }: TreeModelOptions): Promise<TreeModel> {
  const graph = readGraph(model);
  const cut = partitionModel(graph, wanted);
  const sessions: OnnxSession[] = [];
  const open: OpenPart = async (part, names) => {
    const session = await openPart(part, names);
    sessions.push(session);
    return session;
  };
  const compiled: CompiledTrees[] = [];
  const close = async (): Promise<void> => {
    compiled.splice(0).forEach((trees) => {
      trees[Symbol.dispose]();
    });
    for (const session of sessions.splice(0)) {
      await session.close();
    }
  };
  try {
    const before = cut.before && (await open(cut.before.model, cut.before));
    for (const ensemble of cut.ensembles) {
      compiled.push(await compileChecked(graph, ensemble, { type: rowTypeOf(ensemble, before), openPart }));
    }
    const after = cut.after && (await open(cut.after.model, cut.after));
    const bound = cut.ensembles.reduce((most, { ensemble }) => Math.max(most, boundOf(ensemble.transform)), 0);
    return { bound, run: (request) => runParts({ cut, compiled, before, after }, request), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** TensorProto.DataType. */
const elements = { float: 1, int32: 6, int64: 7, string: 8, double: 11 } as const;

const elementOfType: Readonly<Record<RowType, number>> = {
  float32: elements.float,
  float64: elements.double,
  int32: elements.int32,
  int64: elements.int64,
};

function rowTypeOf({ element, input, node }: PartitionedEnsemble, before: OnnxSession | undefined): RowType {
  const computed = before?.signature.outputs.find(({ name }) => name === input)?.dtype;
  const types = Object.keys(elementOfType) as RowType[];
  const type = types.find((candidate) =>
    element === undefined ? candidate === computed : elementOfType[candidate] === element,
  );
  const isWhole = type === "int32" || type === "int64";
  // Of whole numbers, ONNX Runtime has classifiers only.
  if (type === undefined || (isWhole && node.operator !== "TreeEnsembleClassifier")) {
    throw new Unsupported("its rows are neither floats nor doubles");
  }
  return type;
}

/** Values that are compared, of the rows of one ensemble. */
const checkedValues = 1_000_000;
/** Limit of the nodes that ONNX Runtime and the compiled trees visit for these rows. */
const checkedNodes = 100_000_000;
const mostRows = 4096;

async function compileChecked(
  graph: OnnxGraph,
  cut: PartitionedEnsemble,
  { type, openPart }: { readonly type: RowType } & Pick<TreeModelOptions, "openPart">,
): Promise<CompiledTrees> {
  const { ensemble, node, input } = cut;
  const trees = compileTrees(ensemble, type === "float64");
  try {
    const width = Math.max(1, trees.features);
    const { modes } = ensemble.nodes;
    const most = Math.min(mostRows, Math.ceil(checkedValues / width), Math.ceil(checkedNodes / modes.length));
    const data = makeTestRows(ensemble, { width, type, most });
    const rows: NamedTensor = { name: input, dtype: type, dims: [data.length / width, width], data };
    const outputs = node.outputs.filter((name) => name !== "");
    const part = {
      nodes: [node],
      inputs: [valueOf(input, elementOfType[type])],
      outputs: outputs.map((name) => valueOf(name)),
    };
    const session = await openPart(writeModelOf(graph, part), { inputs: [input], outputs });
    try {
      const expected = await session.run({ inputs: [rows], outputs });
      compare(trees.run(rows), { expected, cut, outputs });
    } finally {
      await session.close();
    }
    return trees;
  } catch (error) {
    trees[Symbol.dispose]();
    throw error;
  }
}

function compare(
  scored: CompiledOutput,
  {
    expected,
    cut: { ensemble, node },
    outputs,
  }: { readonly expected: readonly Tensor[]; readonly cut: PartitionedEnsemble; readonly outputs: readonly string[] },
): void {
  const values = node.outputs[ensemble.classes === undefined ? 0 : 1];
  for (const [index, name] of outputs.entries()) {
    const tensor = name === values ? scored.values : scored.labels();
    const bound = name === values ? boundOf(ensemble.transform) : 0;
    const reference = expected[index];
    const difference = reference === undefined ? "there is none" : differenceOf(tensor, reference, bound);
    if (difference !== undefined) {
      throw new Mismatch(`${name} differs from ONNX Runtime's for rows made of the model's thresholds: ${difference}`);
    }
  }
}

interface Parts {
  readonly cut: PartitionedModel;
  readonly compiled: readonly CompiledTrees[];
  readonly before: OnnxSession | undefined;
  readonly after: OnnxSession | undefined;
}

async function runParts({ cut, compiled, before, after }: Parts, request: EngineRequest): Promise<Tensor[]> {
  const known = new Map<string, Tensor>(request.inputs.map((input) => [input.name, input]));
  const inputsOf = (names: Iterable<string>): NamedTensor[] =>
    [...names].map((name) => named(name, tensorIn(name, known)));
  if (cut.before !== undefined && before !== undefined) {
    const { inputs, outputs } = cut.before;
    const tensors = await before.run({ inputs: inputsOf(inputs), outputs });
    outputs.forEach((name, index) => {
      setTensor(known, name, tensors[index]);
    });
  }
  const results = cut.ensembles.map(({ input }, index) => compiled[index]?.run(tensorIn(input, known)));
  const ownTensor = ({ ensemble, kind }: OwnOutput): Tensor | undefined => {
    const result = results[ensemble];
    return kind === "labels" ? result?.labels() : result?.values;
  };
  const made = new Map<string, Tensor>();
  for (const [name, own] of cut.own) {
    setTensor(made, name, ownTensor(own));
  }
  if (cut.after !== undefined && after !== undefined) {
    const { inputs, outputs, from } = cut.after;
    for (const [name, own] of from) {
      setTensor(known, name, ownTensor(own));
    }
    const tensors = await after.run({ inputs: inputsOf([...inputs, ...from.keys()]), outputs });
    outputs.forEach((name, index) => {
      setTensor(made, name, tensors[index]);
    });
  }
  return request.outputs.map((name) => tensorIn(name, made));
}

function named(name: string, tensor: Tensor): NamedTensor {
  return { ...tensor, name };
}

function tensorIn(name: string, tensors: ReadonlyMap<string, Tensor>): Tensor {
  const tensor = tensors.get(name);
  if (tensor === undefined) {
    throw new Unsupported(`no tensor ${name}`);
  }
  return tensor;
}

function setTensor(tensors: Map<string, Tensor>, name: string, tensor: Tensor | undefined): void {
  if (tensor !== undefined) {
    tensors.set(name, tensor);
  }
}

/** Values that models seldom meet and comparisons treat in their own ways. */
const rareFloats = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0];
/** Among them some that are no float32. */
const rareIntegers = [0, 1, -1, 2 ** 24 + 1, 2 ** 25 + 3, 2 ** 31 - 1, -(2 ** 31)];

/**
 * Rows made of what an ensemble compares with: each threshold, the numbers next to it, and rare values such as NaN,
 * infinities and both zeros. Each value occurs in a row. The values of a row are combined at random, with a fixed seed.
 * @param most rows at most, drawn where there are more
 * @public so that tests score such rows
 */
export function makeTestRows(
  { nodes }: Pick<Ensemble, "nodes">,
  { width, type, most }: { readonly width: number; readonly type: RowType; readonly most: number },
): RowValues {
  const values = Array.from({ length: width }, () => new Set<number>(isFloat(type) ? rareFloats : rareIntegers));
  for (const [node, mode] of nodes.modes.entries()) {
    if (mode !== "LEAF") {
      const own = values[nodes.features[node] ?? 0];
      for (const threshold of nodes.members.get(node) ?? [nodes.thresholds[node] ?? 0]) {
        for (const value of valuesAround(threshold, type)) {
          own?.add(value);
        }
      }
    }
  }
  const draw = randomNumbers(1);
  const lists = values.map((set) => shuffled([...set], draw));
  const longest = lists.reduce((length, list) => Math.max(length, list.length), 1);
  const rows = Math.max(1, Math.min(most, Math.max(longest, fewestRows)));
  const made = new Float64Array(rows * width);
  for (const [feature, list] of lists.entries()) {
    for (let row = 0; row < rows; row += 1) {
      // Once each value was there, they are drawn: rows of few NaN reach leaves that others do not.
      const place = row < list.length ? row : Math.floor(draw() * list.length);
      made[row * width + feature] = list[place] ?? 0;
    }
  }
  return valuesOf(made, type);
}

function isFloat(type: RowType): boolean {
  return type === "float32" || type === "float64";
}

function valuesAround(threshold: number, type: RowType): number[] {
  if (isFloat(type)) {
    const neighbour = (side: 1 | -1): number => neighbourOf(threshold, side, type === "float64");
    return Number.isFinite(threshold) ? [threshold, neighbour(1), neighbour(-1)] : [threshold];
  }
  const whole = Math.floor(threshold);
  return [whole - 1, whole, whole + 1, whole + 2].filter((value) => Math.abs(value) < 2 ** 31);
}

function valuesOf(numbers: Float64Array<ArrayBuffer>, type: RowType): RowValues {
  switch (type) {
    case "float32":
      return new Float32Array(numbers);
    case "float64":
      return numbers;
    case "int32":
      return new Int32Array(numbers);
    case "int64":
      return BigInt64Array.from(numbers, BigInt);
    default:
      return assertNever(type);
  }
}

const fewestRows = 256;

function shuffled(list: number[], draw: () => number): number[] {
  for (let index = list.length - 1; index > 0; index -= 1) {
    const other = Math.floor(draw() * (index + 1));
    [list[index], list[other]] = [list[other] ?? 0, list[index] ?? 0];
  }
  return list;
}

interface PartitionedModel {
  readonly ensembles: readonly PartitionedEnsemble[];
  /** Gives the inputs of ensembles that the model itself does not take; undefined: it takes all of them. */
  readonly before: ModelPart | undefined;
  /** Gives those outputs that are no ensemble's own; undefined: there are none. */
  readonly after: AfterPart | undefined;
  /** Outputs of the model that an ensemble gives. */
  readonly own: ReadonlyMap<string, OwnOutput>;
}

interface PartitionedEnsemble {
  readonly ensemble: Ensemble;
  readonly node: OnnxNode;
  readonly input: string;
  /** TensorProto.DataType of the input; undefined: `before` computes the input, and its type is known from that. */
  readonly element: number | undefined;
}

interface OwnOutput {
  readonly ensemble: number;
  readonly kind: "labels" | "values";
}

interface ModelPart {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly model: Uint8Array;
}

interface AfterPart extends ModelPart {
  /** Tensors of ensembles that it takes. */
  readonly from: ReadonlyMap<string, OwnOutput>;
}

/** Partitions a model at its first tree nodes: those whose inputs no other tree node gives. */
function partitionModel(graph: OnnxGraph, wanted: readonly string[]): PartitionedModel {
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
  const after = others.length === 0 ? undefined : partAfter(source, others, ensembles, treeOutputs);
  return { ensembles, own, before: partBefore(source, ensembles), after };
}

interface ModelGraph {
  readonly graph: OnnxGraph;
  readonly producers: ReadonlyMap<string, OnnxNode>;
}

const fewNodes = 8;
const fewTrees = 4;

/** Isolation forests have a node for each tree, and slower ones behind each: compiled trees would not be faster. */
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
  ensembles: readonly PartitionedEnsemble[],
  treeOutputs: ReadonlyMap<string, OwnOutput>,
): AfterPart {
  const { graph } = source;
  const needed = ancestors(source, outputs, treeOutputs);
  const taken = graph.inputs.filter(({ name }) => needed.inputs.includes(name));
  const from = new Map([...treeOutputs].filter(([name]) => needed.treeOutputs.includes(name)));
  const elementOf = ({ ensemble, kind }: OwnOutput): number =>
    kind === "values"
      ? elements.float
      : ensembles[ensemble]?.ensemble.classes?.labels.kind === "string"
        ? elements.string
        : elements.int64;
  const model = writeModelOf(graph, {
    nodes: needed.nodes,
    inputs: [...taken, ...[...from].map(([name, own]) => valueOf(name, elementOf(own)))],
    outputs: graph.outputs.filter(({ name }) => outputs.includes(name)),
  });
  return { inputs: needed.inputs, outputs, from, model };
}
