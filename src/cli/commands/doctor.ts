import { type CommandLine, paramFlag, jsonFlag, type CommandAnswer } from "../flags.js";
import { showCount } from "../../base/shown-numbers.js";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import {
  attemptServices,
  componentVersions,
  findWorker,
  programVersion,
  tokenizersVersion,
} from "../../job/attempt.js";
import { machineError, usableCores } from "../../job/machine.js";
import { requireModelPath } from "../../job/model-tools.js";
import { type EngineOptions, deviceIdOf, modelCopiesBytes, openEngine } from "../../job/open-engine.js";
import { resolveModel } from "../../job/kinds.js";
import { type MissingProvider, probeProvider, providerMissing } from "../../job/providers.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { startScoringWorker } from "../../job/threads/worker-threads.js";
import { installTokenizers, requireTokenizers } from "../../job/tokenizers.js";
import { blankBatch, tensorOutputs } from "../../columns/tensor.js";
import { openDuckDb } from "../../duckdb/instance.js";
import {
  type Machine,
  type Part,
  libraryFolder,
  listGpus,
  packageFolder,
  partsOf,
  providersOn,
  thisMachine,
} from "../../models/devices.js";
import { openOnnxEngine } from "../../models/onnx/engine.js";
import { operatorsByProvider } from "../../models/onnx/operators.js";
import type { Engine } from "../../models/engine.js";
import { openModelFile } from "../../models/places/model-file.js";
import { ProviderFault, installLocale } from "../../models/onnx/faults.js";
import type { ModelFile } from "../../models/places/place.js";
import { table } from "../../report/table.js";
import type { EngineLayout } from "../../flow/opened-job.js";
import type { EngineSpec, Provider } from "../../job/jobfile/engine-spec.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { tokenizerUris } from "../../job/jobfile/model-spec.js";
import { JobError } from "../../base/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";
import { treesText } from "../../flow/batch-size.js";

export const doctorCommand: CommandLine = {
  argument: ["Job spec whose providers and model to try; default: a tiny model"],
  flags: { ...paramFlag, ...jsonFlag },
  run: doctor,
};

/** @throws JobError PROVIDER_MISSING, DEVICE, MEMORY, USAGE if a run would end with it */
async function doctor(specPath: string | undefined, options: JobOptions, io: SafeIo): Promise<CommandAnswer> {
  const loaded = specPath === undefined ? undefined : await readSpec(specPath, options, { pipe: true });
  const server = loaded?.spec.model.server;
  if (loaded !== undefined && specPath !== undefined && server !== undefined) {
    const { doctorServer } = await import("./doctor-server.js");
    return await doctorServer(server, loaded, specPath, io);
  }
  return await doctorMachine(loaded, specPath, io);
}

async function doctorMachine(
  loaded: LoadedSpec | undefined,
  specPath: string | undefined,
  io: SafeIo,
): Promise<CommandAnswer> {
  const machine = thisMachine();
  const engine = loaded?.spec.engine;
  const { providers = ["cpu"] } = engine ?? {};
  const asked = providers === "auto" ? await providersOn(machine) : providers;
  const worker = findWorker(undefined, process.env);
  const deviceId = engine === undefined ? 0 : await deviceIdOf(asked, { given: engine.device_id, worker });
  const duckdb = await faultOf(async () => (await openDuckDb({ threads: 1, allowed: {} }))[Symbol.dispose]());
  const tokenizers = await faultOf(requireTokenizers);
  const needsTokenizers = loaded !== undefined && tokenizerUris(loaded.spec.model).size > 0;
  const parts: readonly Part[] = [
    ...runtimeParts(machine),
    libraryPart("DuckDB", componentVersions["@duckdb/node-bindings"] ?? "", duckdb),
    tokenizers === undefined || needsTokenizers
      ? libraryPart("tokenizers", tokenizersVersion, tokenizers)
      : {
          name: "tokenizers",
          state: "optional",
          found: `only jobs that tokenize texts need it: ${installTokenizers}`,
        },
    ...(await localeParts(machine)),
    ...(await partsOfAll(asked, machine, deviceId)),
  ];
  const trials: Trial[] = [];
  await using model = await modelOf(loaded, specPath, io);
  for (const provider of triedProviders(asked, { machine, parts })) {
    trials.push(await tryProvider(provider, model, { deviceId, trees: engine?.trees ?? "auto" }));
  }
  const platform = machine.platform.replace("/", " ");
  const scoresOn = providerOfRun(asked, trials);
  const error =
    scoresOn === undefined
      ? cannotRun(asked, { parts, trials, machine })
      : (trials.find(({ provider }) => provider === scoresOn)?.error ??
        duckdb ??
        (needsTokenizers ? tokenizers : undefined));
  const outcome = error?.exitCode ?? scoresOn ?? 1;
  const isOk = trials.some(({ provider, state }) => provider === scoresOn && state === "ok");
  const diagnosis: Diagnosis = {
    speeds:
      loaded !== undefined && scoresOn !== undefined && isOk
        ? await measureSpeeds(model, scoresOn, {
            spec: loaded.spec,
            worker,
            cores: usableCores(),
            log: createWarningLog(io.stderr),
          })
        : [],
    program: programVersion,
    platform,
    asked,
    parts,
    trials,
    model: model.name,
    outcome,
  };
  return { json: () => doctorJson(diagnosis), text: () => doctorText(diagnosis), error };
}

function runtimeParts(machine: Machine): Part[] {
  const { runtime } = machine;
  const folder = packageFolder(machine);
  const name = "onnxruntime-node";
  const there = machine.list(folder).includes("onnxruntime_binding.node");
  return [
    { name: "Node", state: "ok", found: `${process.versions.node}, ${process.execPath}` },
    there
      ? { name, state: "ok", found: `${runtime.version}, ${folder}` }
      : { name, state: "missing", found: `${runtime.version} has no library in ${folder}`, remedy: "install it anew" },
  ];
}

async function faultOf(load: () => unknown): Promise<JobError | undefined> {
  try {
    await load();
    return undefined;
  } catch (error) {
    const known = machineError(error) ?? error;
    if (known instanceof JobError) {
      return known;
    }
    throw error;
  }
}

function libraryPart(name: string, version: string, fault: JobError | undefined): Part {
  return fault === undefined
    ? { name, state: "ok", found: version }
    : { name, state: "missing", found: fault.message, remedy: fault.hint };
}

async function localeParts(machine: Machine): Promise<Part[]> {
  if (!machine.platform.startsWith("linux/")) {
    return [];
  }
  const name = "locale en_US.UTF-8";
  const folders = [...(machine.env["LOCPATH"] ?? "").split(":"), "/usr/lib/locale"];
  const folder = folders.find((each) => each !== "" && machine.list(each).some(isTextLocale));
  const known = ((await machine.run("locale", ["-a"])) ?? "").split("\n");
  return folder === undefined && !known.some(isTextLocale)
    ? [{ name, state: "optional", found: `only models that change the case of texts need it: ${installLocale}` }]
    : [{ name, state: "ok", found: folder ?? "as locale -a says" }];
}

function isTextLocale(name: string): boolean {
  return /^en_US\.utf-?8$/i.test(name);
}

/** Without a provider for a GPU, what CUDA and WebGPU need. */
async function partsOfAll(asked: readonly Provider[], machine: Machine, deviceId: number): Promise<readonly Part[]> {
  const gpus = asked.filter((provider) => provider !== "cpu" && !(provider === "cuda" && asked.includes("tensorrt")));
  const checked: readonly Provider[] = gpus.length > 0 ? gpus : ["cuda", "webgpu"];
  const byName = new Map<string, Part>();
  for (const provider of checked) {
    for (const part of await partsOf(provider, machine, deviceId)) {
      // Providers share parts: CUDA needs a GPU of NVIDIA where WebGPU takes any.
      if (!byName.has(part.name) || part.state === "missing") {
        byName.set(part.name, part);
      }
    }
  }
  return [...byName.values()];
}

function triedProviders(
  asked: readonly Provider[],
  { machine, parts }: { readonly machine: Machine; readonly parts: readonly Part[] },
): Provider[] {
  const installed = machine.list(libraryFolder(machine));
  const vulkan = parts.filter(({ name }) => name.startsWith("Vulkan"));
  const hasVulkan = vulkan.length > 0 && vulkan.every(({ state }) => state === "ok");
  const all: readonly Provider[] = ["tensorrt", "cuda", "webgpu", "coreml", "dml", "cpu"];
  return all.filter(
    (provider) =>
      provider === "cpu" ||
      asked.includes(provider) ||
      (provider === "webgpu" && hasVulkan) ||
      installed.includes(`libonnxruntime_providers_${provider}.so`),
  );
}

/** As `openEngine` chooses: a missing one ends a run unless cpu is listed; one that fails is used, and ends the run. */
function providerOfRun(asked: readonly Provider[], trials: readonly Trial[]): Provider | undefined {
  const missing = (provider: Provider): boolean =>
    trials.some((trial) => trial.provider === provider && trial.state === "missing");
  const usable = asked.filter((provider) => !missing(provider));
  return usable.length === asked.length || usable.includes("cpu") ? usable[0] : undefined;
}

function cannotRun(
  asked: readonly Provider[],
  { parts, trials, machine }: Pick<MissingProvider, "parts" | "machine"> & { readonly trials: readonly Trial[] },
): JobError {
  const missing = trials.filter(({ provider, state }) => state === "missing" && asked.includes(provider));
  const names = missing.map(({ provider }) => provider).join(", ");
  const message = missing.map(({ fault }) => fault).join("; ");
  const advice = "what to do is listed above";
  const driverFailed = missing.some((trial) => trial.driverFailed);
  return providerMissing({ doing: `checking for ${names}`, parts, message, machine, asked, advice, driverFailed });
}

async function modelOf(
  loaded: LoadedSpec | undefined,
  specPath: string | undefined,
  io: SafeIo,
): Promise<ModelFile & AsyncDisposable> {
  if (loaded === undefined || specPath === undefined) {
    return await openTinyModel();
  }
  const { spec } = loaded;
  const services = attemptServices(spec, createWarningLog(io.stderr), new AbortController().signal);
  const path = requireModelPath(spec, "doctor tries the model on this machine");
  const { file: model } = await resolveModel(
    { ...spec.model, path },
    { folder: dirname(resolve(specPath)), ...services },
  );
  return { ...model, [Symbol.asyncDispose]: () => Promise.resolve() };
}

export interface Diagnosis {
  readonly program: string;
  readonly platform: string;
  /** Providers of the spec; without a spec, all that are checked. */
  readonly asked: readonly string[];
  readonly parts: readonly Part[];
  /** A trial batch on each provider. */
  readonly trials: readonly Trial[];
  readonly model: string;
  /** The speed of the spec's model on blank rows, by batch size and layout; empty: it was not measured. */
  readonly speeds: readonly Speed[];
  /** The provider on which a run would score, or the exit code with which it would end. */
  readonly outcome: string | number;
}

function doctorJson({ program, outcome, ...rest }: Diagnosis): object {
  const trials = rest.trials.map(({ driverFailed: _driverFailed, error: _error, ...trial }) => ({
    ...trial,
    device: trial.device ?? null,
    ms: trial.ms ?? null,
    fault: trial.fault ?? null,
    trees: trial.trees ?? null,
  }));
  const parts = rest.parts.map(({ name, state, found: finding, remedy }) => {
    return { name, state, found: finding, remedy: remedy ?? null };
  });
  return {
    version: program,
    ...rest,
    parts,
    trials,
    speeds: rest.speeds.map(({ sessions, threads, batchRows, rowsPerSecond }) => {
      return { sessions, threads, batch_size: batchRows, rows_per_second: rowsPerSecond };
    }),
    runs_on: typeof outcome === "string" ? outcome : null,
  };
}

/** The findings as text. @public so that tests reach it */
export function doctorText({ program, platform, asked, parts, trials, model, speeds, outcome }: Diagnosis): string[] {
  const remedies = parts.flatMap(({ name, state, remedy }) =>
    remedy === undefined || state === "ok" ? [] : [`  ${name}: ${remedy}`],
  );
  const forWhat = asked.some((provider) => provider !== "cpu") ? "To do:" : "To do for scoring on a GPU:";
  return [
    verdict(asked, outcome, trials),
    "",
    `infer-batch ${program}, ${platform}`,
    ...table(parts.map(({ name, state, found }) => [name, state, found])),
    "",
    `Two batches of one row through ${model}, on each provider alone:`,
    ...table(trials.map((trial) => [trial.provider, trial.state, trialText(trial)])),
    ...speedLines(speeds),
    ...(remedies.length === 0 ? [] : ["", forWhat, ...remedies]),
  ];
}

function speedLines(speeds: readonly Speed[]): string[] {
  const layoutOf = ({ sessions, threads }: Speed): string => `${sessions} x ${threads}`;
  const layouts = [...new Set(speeds.map(layoutOf))];
  const rateOf = (batchRows: number, layout: string): string =>
    showCount(speeds.find((speed) => speed.batchRows === batchRows && layoutOf(speed) === layout)?.rowsPerSecond ?? "");
  const sizes = [...new Set(speeds.map(({ batchRows }) => batchRows))];
  const rows = sizes.map((size) => [showCount(size)].concat(layouts.map((layout) => rateOf(size, layout))));
  return rows.length === 0
    ? []
    : [
        "",
        "Rows/s of the model alone, blank rows, by batch size and sessions x threads of each:",
        ...table([["batch_size", ...layouts], ...rows], {
          right: Array.from({ length: 1 + layouts.length }, (_, index) => index),
        }),
        "batch_size: auto looks for the fastest on a run's own first batches; threads: auto takes a session for each core.",
      ];
}

function verdict(asked: Diagnosis["asked"], outcome: Diagnosis["outcome"], trials: readonly Trial[]): string {
  if (typeof outcome === "number") {
    return `A run with providers [${asked.join(", ")}] would end with ${outcome}.`;
  }
  const state = trials.find(({ provider }) => provider === outcome)?.state;
  const but = state === "idle" ? ", which leaves all of this model to the CPU" : ", where the trial failed";
  return `A run scores on ${outcome}${state === "ok" ? "" : but}.`;
}

function trialText({ device, operators, ms, fault, trees }: Trial): string {
  const counts = Object.entries(operators).map(([provider, count]) => `${count} on ${provider}`);
  const ran = counts.length === 0 ? [] : [`operators: ${counts.join(", ")}`];
  const took = ms === undefined ? [] : [`${ms.toFixed(1)} ms`];
  const compiled = typeof trees === "string" ? [`trees: ${trees}`] : [];
  return [
    ...(device === undefined ? [] : [device]),
    ...ran,
    ...took,
    ...compiled,
    ...(fault === undefined ? [] : [fault]),
  ].join("; ");
}

interface Trial {
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

/** Runs batches of one blank row on a provider, and reads from the profile which provider ran the operators. @public so that tests reach it */
export async function tryProvider(
  provider: Provider,
  model: ModelFile,
  { deviceId, trees }: { readonly deviceId: number } & Pick<EngineSpec, "trees">,
): Promise<Trial> {
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-doctor-"));
  const nothing = { provider, operators: {}, ms: undefined };
  try {
    const adapter = provider === "webgpu" ? await probeProvider(provider) : undefined;
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

/** undefined for WebGPU, whose device only its driver tells. */
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

/** Relu(x · xᵀ) for float32 [N,4], by `writeModel` of test/support/onnx.ts. Every provider has these operators. */
const tinyModel =
  "CAg6aAoRCgF4EgF0IglUcmFuc3Bvc2UKEQoBeAoBdBIBbSIGTWF0TXVsCgwKAW0SAXkiBFJlbHUSBXNtYWxsWhQKAXgSDwoNCAESCQoDEgFOCgIIBGIVCgF5EhAKDggBEgoKAxIBTgoDEgFNQgIQDQ==";

/** Opens the model for trials without a spec. @public so that tests reach it */
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

/** Of the model alone, while nothing is read or written. */
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

/** Nothing for a model with lists of any length, whose speed depends on them, and for one that refuses blank rows. */
async function measureSpeeds(model: ModelFile, provider: Provider, options: EngineOptions): Promise<Speed[]> {
  const { cores } = options;
  const speeds: Speed[] = [];
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
      speeds.push({ ...layout, batchRows: size, rowsPerSecond });
      msPerRow = (1000 * engine.concurrency) / rowsPerSecond;
    }
  }
  return speeds;
}

function sizesOf({ signature, provider }: Engine): readonly number[] {
  const shapes = signature.inputs.map(({ shape }) => shape);
  if (shapes.some(([, ...more]) => more.includes(null))) {
    return [];
  }
  const fixed = shapes.map(([rows]) => rows).find((rows) => typeof rows === "number");
  return fixed === undefined ? (provider === "cpu" ? batchSizes : gpuBatchSizes) : [fixed];
}

/** With as many batches at once as in a run; undefined: the model or the memory refuses them. */
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
