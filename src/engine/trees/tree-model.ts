import type { NamedTensor, Tensor } from "../../columnar/tensor.js";
import { type OnnxGraph, readGraph, valueOf, writeModelOf } from "../../onnx/graph.js";
import type { OnnxSession } from "../onnx/session.js";
import type { EngineRequest } from "../port.js";
import { boundOf, differenceOf } from "./compare-scores.js";
import { type CompiledOutput, type CompiledTrees, compileTrees } from "./compiled.js";
import {
  type PartitionedEnsemble,
  type PartitionedModel,
  partitionModel,
  elements,
  type OwnOutput,
} from "./partition.js";
import { Mismatch, Unsupported } from "./ensemble.js";
import { makeTestRows } from "./test-rows.js";
import type { RowType } from "./row-values.js";

/** A model whose trees are compiled; ONNX Runtime computes the operators before and after them. */
export interface TreeModel {
  /** How far its scores may differ from ONNX Runtime's, relative to 1 or more. */
  readonly bound: number;
  /** Blocks the thread. @throws what the model fails with, Unsupported for inputs of other shapes */
  run(request: EngineRequest): Promise<Tensor[]>;
  close(): Promise<void>;
}

/**
 * Opens a session of a part of the model in ONNX Runtime, with one thread.
 * @param names inputs and outputs of the part
 */
export type OpenPart = (
  part: Uint8Array,
  names: { readonly inputs: readonly string[]; readonly outputs: readonly string[] },
) => Promise<OnnxSession>;

export interface TreeModelOptions {
  /** A serialized ModelProto. */
  readonly model: Uint8Array;
  /** Outputs that are asked for. */
  readonly wanted: readonly string[];
  readonly openPart: OpenPart;
}

/**
 * Compiles a model's trees and compares what they give, for rows made of their own thresholds, with ONNX Runtime.
 * @throws Unsupported where they cannot be compiled, Mismatch
 */
export async function openTreeModel({ model, wanted, openPart }: TreeModelOptions): Promise<TreeModel> {
  const graph = readGraph(model);
  if (graph === undefined) {
    throw new Unsupported("it has functions, subgraphs or sparse constants");
  }
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
    const elementOf = (own: OwnOutput): number => elementOfOutput(cut, compiled, own);
    const after = cut.after && (await open(cut.after.modelFor(elementOf), cut.after));
    const bound = cut.ensembles.reduce((most, { ensemble }) => Math.max(most, boundOf(ensemble.transform)), 0);
    return { bound, run: (request) => runParts({ cut, compiled, before, after }, request), close };
  } catch (error) {
    await close();
    throw error;
  }
}

const elementOfType: Readonly<Record<RowType, number>> = {
  float32: elements.float,
  float64: elements.double,
  int32: elements.int32,
  int64: elements.int64,
};

/** What the rows of an ensemble consist of. @throws Unsupported */
function rowTypeOf({ element, input, node }: PartitionedEnsemble, before: OnnxSession | undefined): RowType {
  const given = before?.signature.outputs.find(({ name }) => name === input)?.dtype;
  const types = Object.keys(elementOfType) as RowType[];
  const type = types.find((one) => (element === undefined ? one === given : elementOfType[one] === element));
  const isWhole = type === "int32" || type === "int64";
  // Of whole numbers, ONNX Runtime has classifiers only.
  if (type === undefined || (isWhole && node.operator !== "TreeEnsembleClassifier")) {
    throw new Unsupported("its rows are neither floats nor doubles");
  }
  return type;
}

function givesDoubles({ node }: PartitionedEnsemble, isDouble: boolean): boolean {
  return isDouble && node.operator === "TreeEnsemble";
}

function elementOfOutput(cut: PartitionedModel, compiled: readonly CompiledTrees[], own: OwnOutput): number {
  const ensemble = cut.ensembles[own.ensemble];
  if (own.kind === "labels") {
    return ensemble?.ensemble.classes?.labels.kind === "string" ? elements.string : elements.int64;
  }
  const isDouble = compiled[own.ensemble]?.isDouble === true;
  return ensemble !== undefined && givesDoubles(ensemble, isDouble) ? elements.double : elements.float;
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
  const isDouble = type === "float64";
  const trees = compileTrees(ensemble, { isDouble, givesDoubles: givesDoubles(cut, isDouble) });
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
  found: CompiledOutput,
  {
    expected,
    cut: { ensemble, node },
    outputs,
  }: { readonly expected: readonly Tensor[]; readonly cut: PartitionedEnsemble; readonly outputs: readonly string[] },
): void {
  const values = node.outputs[ensemble.classes === undefined ? 0 : 1];
  for (const [index, name] of outputs.entries()) {
    const tensor = name === values ? found.values : found.labels();
    const bound = name === values ? boundOf(ensemble.transform) : 0;
    const other = expected[index];
    const difference = other === undefined ? "there is none" : differenceOf(tensor, other, bound);
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
  const given = new Map<string, Tensor>(request.inputs.map((input) => [input.name, input]));
  const inputsOf = (names: Iterable<string>): NamedTensor[] =>
    [...names].map((name) => named(name, tensorIn(name, given)));
  if (cut.before !== undefined && before !== undefined) {
    const { inputs, outputs } = cut.before;
    const tensors = await before.run({ inputs: inputsOf(inputs), outputs });
    outputs.forEach((name, index) => {
      setTensor(given, name, tensors[index]);
    });
  }
  const results = cut.ensembles.map(({ input }, index) => compiled[index]?.run(tensorIn(input, given)));
  const tensorOf = ({ ensemble, kind }: OwnOutput): Tensor | undefined => {
    const result = results[ensemble];
    return kind === "labels" ? result?.labels() : result?.values;
  };
  const made = new Map<string, Tensor>();
  for (const [name, own] of cut.own) {
    setTensor(made, name, tensorOf(own));
  }
  if (cut.after !== undefined && after !== undefined) {
    const { inputs, outputs, from } = cut.after;
    for (const [name, own] of from) {
      setTensor(given, name, tensorOf(own));
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
