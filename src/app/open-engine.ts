import { ProviderFault } from "../engine/devices/device-faults.js";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { type OnnxEngine, openOnnxEngine } from "../engine/onnx/engine.js";
import type { Engine } from "../engine/port.js";
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

/** Sessions hold a copy of the model each: together at most this much, however many cores there are. */
const modelCopiesBytes = 1024 * 1024 * 1024;
/** Less than this is scored by one session with all threads: starting another one takes longer than it saves. */
const smallInputBytes = 1024 * 1024;

/**
 * Loads a model on the first of the spec's providers that this machine can run.
 * @throws JobError PROVIDER_MISSING for one that it cannot, DEVICE for one whose GPU fails, unless `cpu` is listed behind
 */
export async function openEngine(model: ModelFile, need: EngineNeed, options: EngineOptions): Promise<Engine> {
  const { spec, worker, log, profileFolder, early } = options;
  const preview = "preview" in need;
  const device = await deviceIdOf(spec.engine, worker);
  let providers: readonly Provider[] = preview ? ["cpu"] : spec.engine.providers;
  const missing: string[] = [];
  for (;;) {
    const { sessions, threads } = layoutOf(model, need, { ...options, provider: providers[0] ?? "cpu" });
    try {
      return withScoringFlags(
        await openOnnxEngine({
          model,
          texts: providers[0] === "cpu" ? neededTexts(model, spec.model) : undefined,
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

/** Without outputs that the job leaves out: ONNX Runtime would look for their texts all the same. */
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

/** The device of a worker; of a spec for CPUs, 0. */
export async function deviceIdOf(
  { providers, device_id: given }: EngineSpec,
  worker: Pick<Worker, "index">,
): Promise<number> {
  if (providers[0] === "cpu" || given === 0) {
    return 0;
  }
  // A run on CPUs does not wait for what looks at GPUs.
  const { thisMachine } = await import("../engine/devices/machine.js");
  const { deviceOf } = await import("../engine/devices/gpus.js");
  return deviceOf(given, worker, thisMachine());
}

/** Says what of the provider is missing, as far as it can be found. */
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

/** On CPUs, one thread a session: several batches at once keep the cores busy without threads waiting for each other. */
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
