import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { blankBatch, tensorOutputs } from "../../columnar/blank-rows.js";
import { ProviderFault } from "../../engine/devices/device-faults.js";
import { listGpus } from "../../engine/devices/gpus.js";
import { thisMachine } from "../../engine/devices/machine.js";
import { openOnnxEngine } from "../../engine/onnx/engine.js";
import { operatorsByProvider } from "../../engine/onnx/operators.js";
import type { Engine } from "../../engine/port.js";
import { openModelFile } from "../../models/model-file.js";
import type { ModelFile } from "../../models/port.js";
import type { EngineLayout } from "../../scoring/context.js";
import { treesText } from "../../scoring/batch-size.js";
import type { EngineSpec, Provider } from "../../spec/engine-spec.js";
import { JobError } from "../../util/errors.js";
import { machineError } from "../machine-errors.js";
import { type EngineOptions, modelCopiesBytes, openEngine } from "../open-engine.js";
import { startScoringWorker } from "../threads/worker-threads.js";
import { needsProbe, probeProvider } from "./probe-provider.js";

/** The result of two batches on a provider. */
export interface Trial {
  readonly provider: Provider;
  /** idle: the provider works, and all operators ran on others. */
  readonly state: "ok" | "idle" | "missing" | "failed";
  /** The processor or GPU, as its driver names it; undefined: the driver does not say. */
  readonly device?: string | undefined;
  /** The number of operators that each provider ran, from the profile of ONNX Runtime. */
  readonly operators: Readonly<Record<string, number>>;
  /** Milliseconds of the second batch; the first one allocates memory. */
  readonly ms: number | undefined;
  readonly fault: string | undefined;
  /** missing, since its driver crashed or did not answer. */
  readonly driverFailed?: boolean;
  /** What computes the model's trees in long runs; null: it has none, or the provider is not for CPUs. */
  readonly trees?: string | null | undefined;
  /** The error that a run on this provider would end with, if one batch shows it. */
  readonly error?: JobError | undefined;
}

/** Runs batches of one blank row on a provider, and reads from the profile which provider ran the operators. */
export async function tryProvider(
  provider: Provider,
  model: ModelFile,
  { deviceId, trees }: { readonly deviceId: number } & Pick<EngineSpec, "trees">,
): Promise<Trial> {
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-doctor-"));
  const nothing = { provider, operators: {}, ms: undefined };
  try {
    const { adapter } = needsProbe(provider) ? await probeProvider(provider) : { adapter: undefined };
    const ran = await runBlank(provider, model, { deviceId, folder, trees });
    const operators = await operatorsByProvider(folder);
    const state = ran.fault !== undefined ? "failed" : operators[provider] === undefined ? "idle" : "ok";
    return { provider, state, device: adapter ?? (await deviceName(provider, deviceId)), operators, ...ran };
  } catch (error) {
    if (error instanceof ProviderFault) {
      return { ...nothing, state: "missing", fault: error.message, driverFailed: error.driverFailed };
    }
    const ofMachine = machineError(error) ?? error;
    if (ofMachine instanceof JobError && (ofMachine !== error || ofMachine.exitCode === 75)) {
      return { ...nothing, state: "failed", fault: ofMachine.message, error: ofMachine };
    }
    throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the name of the device that a provider computes on, except for WebGPU's, which only its driver tells. */
async function deviceName(provider: Provider, deviceId: number): Promise<string | undefined> {
  if (provider === "cpu") {
    return cpus()[0]?.model.trim();
  }
  return provider === "cuda" || provider === "tensorrt" ? (await listGpus(thisMachine()))[deviceId]?.name : undefined;
}

async function runBlank(
  provider: Provider,
  model: ModelFile,
  { deviceId, folder, trees }: { readonly deviceId: number; readonly folder: string } & Pick<EngineSpec, "trees">,
): Promise<Pick<Trial, "ms" | "fault" | "error" | "trees">> {
  const layout = { sessions: 1, intraOpThreads: 1 };
  await using engine = await openOnnxEngine({
    model,
    trees: provider === "cpu" && trees === "auto" && model.traits.hasTrees ? model : undefined,
    providers: [provider],
    deviceId,
    profileFolder: folder,
    startWorker: startScoringWorker,
    ...layout,
  });
  const outputs = tensorOutputs(engine.signature);
  let ms: number | undefined;
  for (let round = 0; round < 2; round += 1) {
    const response = await engine.run({ inputs: blankBatch(engine.signature), outputs });
    if (response.kind !== "done") {
      const { kind, message } = response;
      // A model may refuse zeros and still score the rows of a run.
      const error = kind === "exhausted" ? noMemory(engine.local.device, message) : undefined;
      return { ms: undefined, fault: message, error };
    }
    ({ ms } = response);
  }
  await engine.local.expect(Number.POSITIVE_INFINITY, 1);
  return { ms, fault: undefined, trees: treesText(engine.local.trees()) };
}

function noMemory(device: string, message: string): JobError {
  return new JobError("MEMORY", `scoring on ${device}: there is no memory for a batch of one row: ${message}`, {
    hint: "find out what else holds the memory (nvidia-smi lists the processes of a GPU), or use a machine with more; then run the same command again",
  });
}

/**
 * Relu(x · xᵀ) for float32 [N,4], written by `writeModel` of test/support/onnx.ts. Every provider has these operators.
 */
const tinyModel =
  "CAg6aAoRCgF4EgF0IglUcmFuc3Bvc2UKEQoBeAoBdBIBbSIGTWF0TXVsCgwKAW0SAXkiBFJlbHUSBXNtYWxsWhQKAXgSDwoNCAESCQoDEgFOCgIIBGIVCgF5EhAKDggBEgoKAxIBTgoDEgFNQgIQDQ==";

/** Opens the model for trials without a spec. */
export async function openTinyModel(): Promise<ModelFile & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-doctor-"));
  const path = join(folder, "tiny.onnx");
  await writeFile(path, Buffer.from(tinyModel, "base64"));
  return {
    ...(await openModelFile(path)),
    name: "a model of two operators",
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The speed of the model alone, while nothing is read or written. */
interface Speed extends EngineLayout {
  readonly batchRows: number;
  readonly rowsPerSecond: number;
}

const batchSizes = [64, 256, 1024, 4096, 16_384];
/** A GPU may be faster with larger batches. */
const gpuBatchSizes = [...batchSizes, 65_536, 131_072];
/** Long enough for a dozen batches of most models. */
const msEach = 200;
/** Sizes whose batches would take longer are left out: `doctor` answers soon, with a slow model or device, too. */
const longestBatchMs = 1000;

/**
 * Scores blank rows with several batch sizes and layouts, on the provider that a run would use. Returns nothing for a
 * model with lists of any length, whose speed depends on them, and for one that refuses blank rows.
 * @param provider the one that a run would use
 */
export async function measureSpeeds(model: ModelFile, provider: Provider, options: EngineOptions): Promise<Speed[]> {
  const { cores } = options;
  const found: Speed[] = [];
  // Two threads with a session of WebGPU each crash in ONNX Runtime 1.30, so a GPU has one session, as in a run.
  const hasCopies = provider === "cpu" && cores > 1 && model.sizeBytes * cores <= modelCopiesBytes;
  for (const layout of [...(hasCopies ? [{ sessions: cores, threads: 1 }] : []), { sessions: 1, threads: cores }]) {
    await using engine = await openEngine(model, layout, options);
    let msPerRow = 0;
    for (const size of sizesOf(engine)) {
      if (size * msPerRow > longestBatchMs) {
        break;
      }
      const rowsPerSecond = await rate(engine, size);
      if (rowsPerSecond === undefined) {
        break; // larger ones would not fit either
      }
      found.push({ ...layout, batchRows: size, rowsPerSecond });
      msPerRow = (1000 * engine.concurrency) / rowsPerSecond;
    }
  }
  return found;
}

function sizesOf({ signature, provider }: Engine): readonly number[] {
  const shapes = signature.inputs.map(({ shape }) => shape);
  if (shapes.some(([, ...more]) => more.includes(null))) {
    return [];
  }
  const fixed = shapes.map(([rows]) => rows).find((rows) => typeof rows === "number");
  return fixed === undefined ? (provider === "cpu" ? batchSizes : gpuBatchSizes) : [fixed];
}

/** Rows per second with as many batches at once as in a run; undefined if the model or the memory refuses them. */
async function rate(engine: Engine, rows: number): Promise<number | undefined> {
  const outputs = tensorOutputs(engine.signature);
  let calls = 0;
  let isRefused = false;
  const caller = async (until: () => boolean): Promise<void> => {
    do {
      const { kind } = await engine.run({ inputs: blankBatch(engine.signature, rows), outputs, isBlank: true });
      isRefused ||= kind !== "done";
      calls += 1;
    } while (!isRefused && !until());
  };
  const callers = async (until: () => boolean): Promise<void> => {
    await Promise.all(Array.from({ length: engine.concurrency }, () => caller(until)));
  };
  await callers(() => true); // the first call allocates memory
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1); // trees are compiled, as in a run of many rows
  calls = 0;
  const startedMs = performance.now();
  await callers(() => performance.now() - startedMs >= msEach);
  return isRefused ? undefined : Math.round((calls * rows * 1000) / (performance.now() - startedMs));
}
