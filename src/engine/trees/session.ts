import { sha256Of } from "../../util/sha256.js";
import type { Tensor } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";
import type { OnnxSession } from "../onnx/session.js";
import type { EngineRequest, TreesState } from "../port.js";
import { differenceOf, Mismatch } from "./compare-scores.js";
import type { OpenPart, TreeModel } from "./tree-model.js";

/** A session of ONNX Runtime whose trees are compiled once there are enough rows for it. */
export interface TreeSession {
  /** Blocks the thread. ONNX Runtime scores what the compiled trees cannot. */
  run(request: EngineRequest): Promise<ScoredRequest>;
  /** Compiles the trees if that saves time for so many rows, each of which takes ONNX Runtime so long. */
  expect(rows: number, rowMs: number): Promise<void>;
  /** Compiles them where that would have paid by now. Called between batches. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

interface ScoredRequest {
  readonly outputs: Tensor[];
  readonly ms: number;
  readonly byTrees: boolean;
}

export interface TreeSessionOptions {
  /** The whole model in ONNX Runtime. */
  readonly base: OnnxSession;
  /** How long it took to open. */
  readonly openedMs: number;
  /** The digest of the model's file. */
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly readModel: () => Promise<Uint8Array>;
  readonly openPart: OpenPart;
  readonly onState: (state: TreesState) => void;
  readonly nowMs: () => number;
}

/** To compile and to check takes about so long, by the model's size. */
const costMs = { least: 20, perMegabyte: 150 } as const;
/** Compiling saves time where ONNX Runtime takes so many times as long. */
const worth = 2;
/** With fewer rows, the compiled trees take as long as with 64. */
const fewestRows = 16;

export function openTreeSession(options: TreeSessionOptions): TreeSession {
  const { base } = options;
  const trees = openTrees(options);
  let spentMs = 0;
  let wanted: readonly string[] = [];
  const runBase = async (request: EngineRequest): Promise<ScoredRequest> => {
    const done = await timed(options, () => base.run(request));
    spentMs += done.ms;
    wanted = request.outputs;
    return { ...done, byTrees: false };
  };
  const compileFor = async (ms: number): Promise<void> => {
    if (ms > worth * trees.costMs && wanted.length > 0) {
      await trees.compile(wanted);
    }
  };
  return {
    async run(request) {
      const model = trees.modelFor(request);
      if (model === undefined) {
        return await runBase(request);
      }
      try {
        return await (model.trialsLeft > 0 ? runTrial : runTrees)(options, model, request);
      } catch (error) {
        const done = await runBase(request); // which tells what is wrong with the batch, where something is
        trees.giveUp(error);
        return done;
      }
    },
    expect: (rows, rowMs) => compileFor(rows * rowMs),
    settle: () => compileFor(spentMs),
    async close() {
      await trees.close();
      await base.close();
    },
  };
}

/** The state of a session's trees: not compiled yet, compiled, or abandoned. */
interface Trees {
  /** The time that compiling them takes, about. */
  readonly costMs: number;
  /** undefined: ONNX Runtime is to score these rows. */
  modelFor(request: EngineRequest): CompiledModel | undefined;
  /** Does nothing the second time. @param wanted outputs */
  compile(wanted: readonly string[]): Promise<void>;
  giveUp(error: unknown): void;
  close(): Promise<void>;
}

function openTrees(options: TreeSessionOptions): Trees {
  let compiled: CompiledModel | undefined;
  let compiling: Promise<CompiledModel | undefined> | undefined;
  const giveUp = (error: unknown): void => {
    // It is closed with the session: another batch may be in it.
    compiled = undefined;
    options.onState({ kind: error instanceof Mismatch ? "mismatch" : "onnxruntime", reason: messageOf(error) });
  };
  const begin = async (wanted: readonly string[]): Promise<CompiledModel | undefined> => {
    try {
      compiled = await compileModel(options, wanted);
      options.onState({ kind: "compiled" });
    } catch (error) {
      giveUp(error);
    }
    return compiled;
  };
  return {
    // Parts before and after the trees take as long to open as the whole model may.
    costMs: Math.max(costMs.least + (costMs.perMegabyte * options.sizeBytes) / 2 ** 20, options.openedMs),
    modelFor({ inputs, outputs }) {
      const isSmall = (inputs[0]?.dims[0] ?? 0) < fewestRows;
      return isSmall || compiled?.wanted !== outputs.join("\n") ? undefined : compiled;
    },
    async compile(wanted) {
      compiling ??= begin(wanted);
      await compiling;
    },
    giveUp,
    async close() {
      await (await compiling)?.trees.close();
    },
  };
}

interface CompiledModel {
  readonly trees: TreeModel;
  readonly wanted: string;
  /** Batches that ONNX Runtime scores, too, before the compiled trees do alone. */
  trialsLeft: number;
  /** Milliseconds a row, in the fastest of the trials: any of them may be held up. */
  treesMs: number;
  baseMs: number;
}

const trialBatches = 4;

/** @throws Unsupported, Mismatch, Error where the model's file was replaced */
async function compileModel(
  { readModel, sha256, openPart }: TreeSessionOptions,
  wanted: readonly string[],
): Promise<CompiledModel> {
  const model = await readModel();
  if (sha256Of(model) !== sha256) {
    throw new Error("the model's file was replaced");
  }
  const { openTreeModel } = await import("./tree-model.js"); // few jobs need it, and each thread would load it
  const trees = await openTreeModel({ model, wanted, openPart });
  return {
    trees,
    wanted: wanted.join("\n"),
    trialsLeft: trialBatches,
    treesMs: Number.POSITIVE_INFINITY,
    baseMs: Number.POSITIVE_INFINITY,
  };
}

async function timed(
  { nowMs }: Pick<TreeSessionOptions, "nowMs">,
  run: () => Promise<Tensor[]>,
): Promise<Pick<ScoredRequest, "outputs" | "ms">> {
  const startedMs = nowMs();
  const outputs = await run();
  return { outputs, ms: nowMs() - startedMs };
}

async function runTrees(
  clock: Pick<TreeSessionOptions, "nowMs">,
  { trees }: CompiledModel,
  request: EngineRequest,
): Promise<ScoredRequest> {
  return { ...(await timed(clock, () => trees.run(request))), byTrees: true };
}

/** The same batch by both. @throws Mismatch, Error where ONNX Runtime is faster */
async function runTrial(
  options: TreeSessionOptions,
  model: CompiledModel,
  request: EngineRequest,
): Promise<ScoredRequest> {
  const byTrees = await runTrees(options, model, request);
  const byBase = await timed(options, () => options.base.run(request));
  requireSame(byTrees.outputs, byBase.outputs, request);
  model.trialsLeft -= 1;
  const rows = request.inputs[0]?.dims[0] ?? 1;
  model.treesMs = Math.min(model.treesMs, byTrees.ms / rows);
  model.baseMs = Math.min(model.baseMs, byBase.ms / rows);
  if (model.trialsLeft === 0 && model.treesMs > model.baseMs) {
    throw new Error("ONNX Runtime is faster on its batches");
  }
  return byTrees;
}

/** The tolerance for outputs that ONNX Runtime computes from scores, or adds up in several threads. */
const trialBound = 1e-5;

function requireSame(scored: readonly Tensor[], expected: readonly Tensor[], { outputs }: EngineRequest): void {
  for (const [index, name] of outputs.entries()) {
    const [tensor, reference] = [scored[index], expected[index]];
    const difference = tensor && reference && differenceOf(tensor, reference, trialBound);
    if (difference !== undefined) {
      throw new Mismatch(`${name} of a batch differs from ONNX Runtime's: ${difference}`);
    }
  }
}
