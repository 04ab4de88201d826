import type { TextTensors } from "../columns/tensor.js";
import { ProviderFault } from "../models/onnx/faults.js";
import type { EarlyThreads } from "../models/onnx/early-threads.js";
import { type OnnxEngine, openOnnxEngine } from "../models/onnx/engine.js";
import type { Engine, TreesState } from "../models/engine.js";
import type { ModelFile } from "../models/places/place.js";
import type { EngineLayout, EngineNeed, Log } from "../flow/opened-job.js";
import { JobError } from "../base/errors.js";
import type { Worker } from "../run/plan/spans.js";
import type { EngineSpec, Provider } from "./jobfile/engine-spec.js";
import { type ModelSpec, parseOutputReference } from "./jobfile/model-spec.js";
import { startScoringWorker } from "./threads/worker-threads.js";

export interface EngineOptions {
  readonly spec: { readonly engine: EngineSpec; readonly model: Pick<ModelSpec, "outputs"> };
  readonly worker: Worker;
  readonly cores: number;
  readonly log: Pick<Log, "warn">;
  readonly profileFolder?: string | undefined;
  readonly early?: EarlyThreads | undefined;
}

/** Each session holds a copy of the model. Together they take at most this much memory. */
export const modelCopiesBytes = 1024 * 1024 * 1024;
/** Smaller inputs are scored by one session with all threads: starting another session takes longer than it saves. */
const smallInputBytes = 1024 * 1024;

/** @throws JobError PROVIDER_MISSING for one that cannot run, DEVICE for a failing GPU, unless `cpu` comes after it */
export async function openEngine(model: ModelFile, need: EngineNeed, options: EngineOptions): Promise<Engine> {
  const { spec, worker, log } = options;
  const asked = await askedProviders(need, spec.engine);
  const deviceId = await deviceIdOf(asked, { given: spec.engine.device_id, worker });
  let preferred = asked;
  const missing: string[] = [];
  for (;;) {
    try {
      const engine = await openOn(ofOneSession(preferred), deviceId, missing, model, need, options);
      const { operators } = engine.local;
      if (operators === undefined || operators[engine.provider] !== undefined) {
        warnOfParts(engine, model, log);
        return engine;
      }
      await engine[Symbol.asyncDispose]();
      preferred = ["cpu"]; // which computes the model in any case, and in this way without copies
      log.warn(
        `${engine.provider} has none of the operators of ${model.name}: the CPU computes it; write engine.providers: [cpu]`,
      );
    } catch (error) {
      if (!(error instanceof ProviderFault)) {
        throw error;
      }
      const absent = await whyMissing(error, deviceId, asked);
      if (preferred.at(-1) !== "cpu" || error.provider === "cpu") {
        throw absent;
      }
      missing.push(error.provider);
      preferred = preferred.filter((provider) => provider !== error.provider);
      log.warn(`NOT ON ${error.provider.toUpperCase()}, on ${preferred.join(", ")} instead: ${absent.message}`);
    }
  }
}

async function askedProviders(need: EngineNeed, { providers }: EngineSpec): Promise<readonly Provider[]> {
  if ("preview" in need) {
    return ["cpu"];
  }
  if (providers !== "auto") {
    return providers;
  }
  // The module that inspects GPUs is loaded only if the spec needs them.
  const { providersOn, thisMachine } = await import("../models/devices.js");
  return await providersOn(thisMachine());
}

function ofOneSession([first = "cpu", ...others]: readonly Provider[]): readonly Provider[] {
  return [first, ...others.filter((one) => one === "cpu" || (first === "tensorrt" && one === "cuda"))];
}

/** @throws ProviderFault if this machine cannot run the first provider */
async function openOn(
  providers: readonly Provider[],
  deviceId: number,
  missing: readonly string[],
  model: ModelFile,
  need: EngineNeed,
  options: EngineOptions,
): Promise<OnnxEngine> {
  const { spec, log, profileFolder, early } = options;
  const [provider = "cpu"] = providers;
  const { sessions, threads } = layoutOf(model, need, { ...options, provider });
  const isCpu = provider === "cpu";
  const mayCompile = isCpu && !("preview" in need) && spec.engine.trees === "auto" && model.traits.hasTrees;
  if (provider === "webgpu") {
    const { probeProvider } = await import("./providers.js"); // and what inspects GPUs
    await probeProvider(provider);
  }
  return await openOnnxEngine({
    model,
    texts: isCpu ? neededTexts(model, spec.model) : undefined,
    tokenizers: model.tokenizers,
    // Trees are compiled for numbers.
    trees: mayCompile && model.tokenizers === undefined ? model : undefined,
    onTrees: warnOnce(model, log),
    providers,
    deviceId,
    missing,
    sessions,
    intraOpThreads: threads,
    profileFolder,
    startWorker: () => early?.take() ?? startScoringWorker(),
  });
}

/** Warns if the CPU computes a part of the model, which costs copies to and from the device. */
function warnOfParts({ provider, local }: OnnxEngine, { name }: ModelFile, log: Pick<Log, "warn">): void {
  const { cpu = 0, ...others } = local.operators ?? {};
  if (cpu > 0) {
    const all = Object.values(others).reduce((sum, count) => sum + count, cpu);
    log.warn(`the CPU computes ${cpu} of ${all} operators of ${name}, which ${provider} does not have`);
  }
}

/** Sessions check their trees each for itself, and find the same. */
function warnOnce({ name }: ModelFile, log: Pick<Log, "warn">): (state: TreesState) => void {
  let hasWarned = false;
  return (state) => {
    if (state.kind === "mismatch" && !hasWarned) {
      hasWarned = true;
      log.warn(`checking the compiled trees of ${name}: ${state.reason}; ONNX Runtime computes them in this attempt`);
    }
  };
}

/** ONNX Runtime would compute the texts of outputs that the job does not use. */
function neededTexts({ texts }: ModelFile, { outputs }: Pick<ModelSpec, "outputs">): TextTensors {
  if (outputs === undefined) {
    return texts;
  }
  const tensors = new Set(Object.values(outputs).map((reference) => parseOutputReference(reference)?.tensor));
  return { inputs: texts.inputs, outputs: texts.outputs.filter((name) => tensors.has(name)) };
}

export async function deviceIdOf(
  providers: readonly Provider[],
  { given, worker }: { readonly given: EngineSpec["device_id"]; readonly worker: Pick<Worker, "index"> },
): Promise<number> {
  if (providers[0] === "cpu" || given === 0) {
    return 0;
  }
  // The module that inspects GPUs is loaded only if the spec names one.
  const { deviceOf, thisMachine } = await import("../models/devices.js");
  return deviceOf(given, worker, thisMachine());
}

async function whyMissing(
  { provider, message, driverFailed }: ProviderFault,
  deviceId: number,
  asked: readonly Provider[],
): Promise<JobError> {
  const { partsOf, thisMachine } = await import("../models/devices.js");
  const { providerMissing } = await import("./providers.js");
  const machine = thisMachine();
  const parts = await partsOf(provider, machine, deviceId);
  const first = parts.find(({ state, remedy }) => state === "missing" && remedy !== undefined);
  const remedy = first === undefined ? "" : `${first.name}: ${first.remedy}; `;
  const advice = `${remedy}\`infer-batch doctor\` tells what to do about each part`;
  const doing = `opening execution provider ${provider}`;
  return providerMissing({ doing, parts, message, machine, asked, advice, driverFailed });
}

/** On CPUs each session has one thread, so that threads do not wait for each other. */
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
  const isSmall = need.preview === true || (asked === "auto" && need.inputBytes < smallInputBytes);
  const sessions = isSmall ? 1 : Math.max(1, copies);
  return { sessions, threads: Math.max(1, Math.floor(threads / sessions)) };
}
