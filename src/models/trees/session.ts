import type { Tensor } from "../../columns/tensor.js";
import { messageOf } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import type { OnnxSession } from "../onnx/session.js";
import type { EngineRequest, TreesState } from "../engine.js";
import { differenceOf, Mismatch } from "./compare-scores.js";
import type { OpenPart, TreeModel } from "./tree-model.js";

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
/** Batches that ONNX Runtime scores, too, before the compiled trees do alone. */
const trialBatches = 4;
/** The tolerance for outputs that ONNX Runtime computes from scores, or adds up in several threads. */
const trialBound = 1e-5;

interface CompiledModel {
  readonly trees: TreeModel;
  readonly wanted: string;
  trialsLeft: number;
  /** Milliseconds a row, in the fastest of the trials: any of them may be held up. */
  treesMs: number;
  baseMs: number;
}

export type TreeSession = ReturnType<typeof openTreeSession>;

/** A session of ONNX Runtime whose trees are compiled once there are enough rows for it. Scoring blocks the thread. */
export function openTreeSession({ base, sha256, readModel, openPart, onState, nowMs, ...options }: TreeSessionOptions) {
  // Parts before and after the trees take as long to open as the whole model may.
  const compileMs = Math.max(costMs.least + (costMs.perMegabyte * options.sizeBytes) / 2 ** 20, options.openedMs);
  let spentMs = 0;
  let wanted: readonly string[] = [];
  /** undefined: not compiled, or given up. */
  let compiled: CompiledModel | undefined;
  let compiling: Promise<TreeModel | undefined> | undefined;

  const giveUp = (error: unknown): void => {
    compiled = undefined; // it is closed with the session: another batch may be in it
    onState({ kind: error instanceof Mismatch ? "mismatch" : "onnxruntime", reason: messageOf(error) });
  };
  const compile = async (): Promise<TreeModel | undefined> => {
    try {
      const model = await readModel();
      if (sha256Of(model) !== sha256) {
        throw new Error("the model's file was replaced");
      }
      const { openTreeModel } = await import("./tree-model.js"); // few jobs need it, and each thread would load it
      const names = wanted;
      const trees = await openTreeModel({ model, wanted: names, openPart });
      const [treesMs, baseMs] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      compiled = { trees, wanted: names.join("\n"), trialsLeft: trialBatches, treesMs, baseMs };
      onState({ kind: "compiled" });
      return trees;
    } catch (error) {
      giveUp(error);
      return undefined;
    }
  };
  const compileFor = async (ms: number): Promise<void> => {
    if (ms > worth * compileMs && wanted.length > 0) {
      compiling ??= compile();
      await compiling;
    }
  };

  const timed = async (run: () => Promise<Tensor[]>): Promise<Omit<ScoredRequest, "byTrees">> => {
    const startedMs = nowMs();
    const outputs = await run();
    return { outputs, ms: nowMs() - startedMs };
  };
  const runBase = async (request: EngineRequest): Promise<ScoredRequest> => {
    const done = await timed(() => base.run(request));
    spentMs += done.ms;
    wanted = request.outputs;
    return { ...done, byTrees: false };
  };
  /** Scores with the trees; in trials with both. @throws Mismatch, Error where ONNX Runtime is faster */
  const runTrees = async (model: CompiledModel, request: EngineRequest): Promise<ScoredRequest> => {
    const byTrees = await timed(() => model.trees.run(request));
    if (model.trialsLeft > 0) {
      const byBase = await timed(() => base.run(request));
      requireSame(byTrees.outputs, byBase.outputs, request);
      model.trialsLeft -= 1;
      const rows = request.inputs[0]?.dims[0] ?? 1;
      model.treesMs = Math.min(model.treesMs, byTrees.ms / rows);
      model.baseMs = Math.min(model.baseMs, byBase.ms / rows);
      if (model.trialsLeft === 0 && model.treesMs > model.baseMs) {
        throw new Error("ONNX Runtime is faster on its batches");
      }
    }
    return { ...byTrees, byTrees: true };
  };

  return {
    /** ONNX Runtime scores what the compiled trees cannot. */
    async run(request: EngineRequest): Promise<ScoredRequest> {
      const isSmall = (request.inputs[0]?.dims[0] ?? 0) < fewestRows;
      if (compiled === undefined || isSmall || compiled.wanted !== request.outputs.join("\n")) {
        return await runBase(request);
      }
      try {
        return await runTrees(compiled, request);
      } catch (error) {
        const done = await runBase(request); // which tells what is wrong with the batch, where something is
        giveUp(error);
        return done;
      }
    },
    /** Compiles the trees if that saves time for so many rows, each of which takes ONNX Runtime so long. */
    expect: (rows: number, rowMs: number) => compileFor(rows * rowMs),
    /** Compiles them where that would have paid by now. Called between batches. */
    settle: () => compileFor(spentMs),
    async close() {
      await (await compiling)?.close();
      await base.close();
    },
  };
}

function requireSame(scored: readonly Tensor[], expected: readonly Tensor[], { outputs }: EngineRequest): void {
  for (const [index, name] of outputs.entries()) {
    const [tensor, reference] = [scored[index], expected[index]];
    const difference = tensor && reference && differenceOf(tensor, reference, trialBound);
    if (difference !== undefined) {
      throw new Mismatch(`${name} of a batch differs from ONNX Runtime's: ${difference}`);
    }
  }
}
