import { ProviderFault } from "../engine/devices/device-faults.js";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { type OnnxEngine, openOnnxEngine } from "../engine/onnx/engine.js";
import type { Engine, TreesState } from "../engine/port.js";
import type { ModelFile } from "../models/port.js";
import type { TextTensors } from "../columnar/tensor.js";
import { JobError } from "../util/errors.js";
import type { EngineLayout, EngineNeed, Log } from "../scoring/context.js";
import type { Worker } from "../plan/share.js";
import type { EngineSpec, Provider } from "../spec/engine-spec.js";
import { parseOutputReference } from "../spec/job-spec.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { setScoringFlags } from "./v8-flags.js";
import { startScoringWorker } from "./worker-threads.js";

export interface EngineOptions {
  readonly spec: { readonly engine: EngineSpec; readonly model: Pick<ModelSpec, "outputs"> };
  readonly worker: Worker;
  readonly cores: number;
  readonly log: Pick<Log, "warn">;
  readonly profileFolder?: string | undefined;
  readonly early?: EarlyThreads | undefined;
}

/** Each session holds a copy of the model. Together they take at most this much memory. */
const modelCopiesBytes = 1024 * 1024 * 1024;
/** Smaller inputs are scored by one session with all threads: starting another session takes longer than it saves. */
const smallInputBytes = 1024 * 1024;

/**
 * Loads a model on the first of the spec's providers that this machine can run.
 * @throws JobError PROVIDER_MISSING for one that it cannot run, DEVICE for one whose GPU fails, unless `cpu` is listed
 * after it
 */
export async function openEngine(model: ModelFile, need: EngineNeed, options: EngineOptions): Promise<Engine> {
  const { spec, worker, log, profileFolder, early } = options;
  const preview = "preview" in need;
  const device = await deviceIdOf(spec.engine, worker);
  let providers: readonly Provider[] = preview ? ["cpu"] : spec.engine.providers;
  const missing: string[] = [];
  for (;;) {
    const { sessions, threads } = layoutOf(model, need, { ...options, provider: providers[0] ?? "cpu" });
    const isCpu = providers[0] === "cpu";
    try {
      return withScoringFlags(
        await openOnnxEngine({
          model,
          texts: isCpu ? neededTexts(model, spec.model) : undefined,
          trees: isCpu && !preview && spec.engine.trees === "auto" && model.traits.hasTrees ? model : undefined,
          onTrees: warnOnce(model, log),
          providers,
          deviceId: device,
          missing,
          sessions,
          intraOpThreads: threads,
          profileFolder,
          startWorker: () => early?.take() ?? startScoringWorker(),
        }),
      );
    } catch (error) {
      if (!(error instanceof ProviderFault)) {
        throw error;
      }
      const absent = await whyMissing(error, device, spec.engine.providers);
      if (providers.at(-1) !== "cpu" || error.provider === "cpu") {
        throw absent;
      }
      missing.push(error.provider);
      providers = providers.filter((provider) => provider !== error.provider);
      log.warn(`NOT ON ${error.provider.toUpperCase()}, on ${providers.join(", ")} instead: ${absent.message}`);
    }
  }
}

/** Sessions check their trees each for itself, and find the same. */
function warnOnce({ name }: ModelFile, log: Pick<Log, "warn">): (state: TreesState) => void {
  let isTold = false;
  return (state) => {
    if (state.kind === "mismatch" && !isTold) {
      isTold = true;
      log.warn(`checking the compiled trees of ${name}: ${state.reason}; ONNX Runtime computes them in this attempt`);
    }
  };
}

/** Leaves out outputs that the job does not use: ONNX Runtime would compute their texts. */
function neededTexts({ texts }: ModelFile, { outputs }: Pick<ModelSpec, "outputs">): TextTensors {
  if (outputs === undefined) {
    return texts;
  }
  const tensors = new Set(Object.values(outputs).map((reference) => parseOutputReference(reference)?.tensor));
  return { inputs: texts.inputs, outputs: texts.outputs.filter((name) => tensors.has(name)) };
}

function withScoringFlags(engine: OnnxEngine): Engine {
  const flags = setScoringFlags(engine.local.opened());
  return {
    ...engine,
    async [Symbol.asyncDispose]() {
      flags[Symbol.dispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

/** Returns the number of the GPU that a worker uses; 0 for a spec without GPUs. */
export async function deviceIdOf(
  { providers, device_id: given }: EngineSpec,
  worker: Pick<Worker, "index">,
): Promise<number> {
  if (providers[0] === "cpu" || given === 0) {
    return 0;
  }
  // The modules that inspect GPUs are loaded only if the spec names one.
  const { thisMachine } = await import("../engine/devices/machine.js");
  const { deviceOf } = await import("../engine/devices/gpus.js");
  return deviceOf(given, worker, thisMachine());
}

/** Finds out why a provider cannot run. */
async function whyMissing(
  { provider, message }: ProviderFault,
  deviceId: number,
  asked: readonly Provider[],
): Promise<JobError> {
  const { thisMachine } = await import("../engine/devices/machine.js");
  const { gpuParts } = await import("../engine/devices/gpu-parts.js");
  const { providerMissing } = await import("./provider-missing.js");
  const machine = thisMachine();
  const parts = provider === "cpu" ? [] : await gpuParts(provider, machine, deviceId);
  const advice = "`infer-batch doctor` tells what to do";
  return providerMissing({ doing: `opening execution provider ${provider}`, parts, message, machine, asked, advice });
}

/** Chooses sessions and threads. On CPUs each session has one thread, so that threads do not wait for each other. */
function layoutOf(
  model: ModelFile,
  need: EngineNeed,
  { spec, cores, provider }: Pick<EngineOptions, "spec" | "cores"> & { readonly provider: Provider },
): EngineLayout {
  if ("sessions" in need) {
    return need;
  }
  // More threads than cores only wait for each other, each with a copy of the model.
  const asked = spec.engine.threads;
  const threads = asked === "auto" ? cores : Math.min(asked, cores);
  if (provider !== "cpu") {
    return { sessions: 1, threads }; // each session would take memory of the device for itself
  }
  const copies = Math.min(threads, Math.floor(modelCopiesBytes / Math.max(1, model.sizeBytes)));
  const sessions = asked === "auto" && need.inputBytes < smallInputBytes ? 1 : Math.max(1, copies);
  return { sessions, threads: Math.max(1, Math.floor(threads / sessions)) };
}
