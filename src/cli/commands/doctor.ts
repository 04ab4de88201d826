import { dirname, resolve } from "node:path";
import { attemptServices } from "../../app/attempt-services.js";
import { machineError } from "../../app/machine-errors.js";
import { requireModelPath } from "../../app/models/model-path.js";
import { installTokenizers, requireTokenizers } from "../../app/models/tokenizers.js";
import { deviceIdOf } from "../../app/open-engine.js";
import { resolveModel } from "../../app/open-model.js";
import { usableCores } from "../../app/process-limits.js";
import { type MissingProvider, providerMissing } from "../../app/providers/provider-missing.js";
import { measureSpeeds, openTinyModel, type Trial, tryProvider } from "../../app/providers/provider-trial.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { componentVersions, programVersion, tokenizersVersion } from "../../app/version.js";
import { findWorker } from "../../app/worker.js";
import { openDuckDb } from "../../duckdb/instance.js";
import { libraryFolder, type Machine, packageFolder, type Part, thisMachine } from "../../engine/devices/machine.js";
import { partsOf, providersOn } from "../../engine/devices/parts.js";
import { installLocale } from "../../engine/onnx/faults.js";
import type { ModelFile } from "../../models/port.js";
import { type Diagnosis, doctorJson, doctorText } from "../../report/doctor-text.js";
import type { Provider } from "../../spec/engine-spec.js";
import type { LoadedSpec } from "../../spec/load.js";
import { tokenizerUris } from "../../spec/model-spec.js";
import { JobError } from "../../util/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

/**
 * Shows what a run needs on this machine, and tries it.
 * @throws JobError PROVIDER_MISSING, DEVICE, MEMORY, USAGE if a run would end with it
 */
export async function doctorCommand(
  specPath: string | undefined,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  const loaded = specPath === undefined ? undefined : await readSpec(specPath, options, { pipe: true });
  const server = loaded?.spec.model.server;
  if (loaded !== undefined && specPath !== undefined && server !== undefined) {
    const { doctorServer } = await import("./doctor-server.js");
    await doctorServer(server, loaded, { specPath, json: options.json === true }, io);
    return;
  }
  await doctorMachine({ loaded, specPath, json: options.json === true }, io);
}

interface MachineOptions {
  readonly loaded: LoadedSpec | undefined;
  readonly specPath: string | undefined;
  readonly json: boolean;
}

async function doctorMachine({ loaded, specPath, json }: MachineOptions, io: SafeIo): Promise<void> {
  const machine = thisMachine();
  const engine = loaded?.spec.engine;
  const { providers = ["cpu"] } = engine ?? {};
  const asked = providers === "auto" ? await providersOn(machine) : providers;
  const worker = findWorker(undefined, process.env);
  const deviceId = engine === undefined ? 0 : await deviceIdOf(asked, { given: engine.device_id, worker });
  const duckdb = await tryDuckDb();
  const tokenizers = tryTokenizers(loaded);
  const always = [
    ...runtimeParts(machine),
    duckDbPart(duckdb),
    tokenizersPart(tokenizers),
    ...(await localeParts(machine)),
  ];
  const parts = [...always, ...(await partsOfAll(asked, machine, deviceId))];
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
      : (trials.find(({ provider }) => provider === scoresOn)?.error ?? duckdb ?? tokenizers.error);
  const outcome = error?.exitCode ?? scoresOn ?? 1;
  const shown = trials.map(({ provider, state, device, operators, ms, fault, trees }) => ({
    provider,
    state,
    device,
    operators,
    ms,
    fault,
    trees,
  }));
  const isOk = trials.some(({ provider, state }) => provider === scoresOn && state === "ok");
  const found: Diagnosis = {
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
    trials: shown,
    model: model.name,
    outcome,
  };
  io.stdout.write(json ? `${doctorJson(found)}\n` : doctorText(found));
  if (error !== undefined) {
    throw error;
  }
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

/** Loads DuckDB, which writes Parquet and decodes many shards. Returns why it cannot be loaded; undefined if it can. */
async function tryDuckDb(): Promise<JobError | undefined> {
  try {
    using _ = await openDuckDb({ threads: 1, allowed: {} });
    return undefined;
  } catch (error) {
    const known = machineError(error);
    if (known === undefined) {
      throw error;
    }
    return known;
  }
}

function duckDbPart(fault: JobError | undefined): Part {
  const name = "DuckDB";
  return fault === undefined
    ? { name, state: "ok", found: componentVersions["@duckdb/node-bindings"] ?? "" }
    : { name, state: "missing", found: fault.message, remedy: fault.hint };
}

interface TokenizersState {
  /** Why the package cannot be used; undefined: it can. */
  readonly fault: JobError | undefined;
  /** The same if the spec tokenizes texts. */
  readonly error: JobError | undefined;
}

/** Loads the package that makes tokens of texts, which only some jobs need. */
function tryTokenizers(loaded: LoadedSpec | undefined): TokenizersState {
  try {
    requireTokenizers();
    return { fault: undefined, error: undefined };
  } catch (fault) {
    if (!(fault instanceof JobError)) {
      throw fault;
    }
    const isNeeded = loaded !== undefined && tokenizerUris(loaded.spec.model).size > 0;
    return { fault, error: isNeeded ? fault : undefined };
  }
}

function tokenizersPart({ fault, error }: TokenizersState): Part {
  const name = "tokenizers";
  if (fault === undefined) {
    return { name, state: "ok", found: tokenizersVersion };
  }
  return error === undefined
    ? { name, state: "optional", found: `only jobs that tokenize texts need it: ${installTokenizers}` }
    : { name, state: "missing", found: fault.message, remedy: fault.hint };
}

/** Looks for the locale that ONNX Runtime's StringNormalizer has by default. */
async function localeParts(machine: Machine): Promise<Part[]> {
  if (!machine.platform.startsWith("linux/")) {
    return [];
  }
  const name = "locale en_US.UTF-8";
  const folders = [...(machine.env["LOCPATH"] ?? "").split(":"), "/usr/lib/locale"];
  const folder = folders.find((one) => one !== "" && machine.list(one).some(isTextLocale));
  const known = ((await machine.run("locale", ["-a"])) ?? "").split("\n");
  return folder === undefined && !known.some(isTextLocale)
    ? [{ name, state: "optional", found: `only models that change the case of texts need it: ${installLocale}` }]
    : [{ name, state: "ok", found: folder ?? "as locale -a says" }];
}

function isTextLocale(name: string): boolean {
  return /^en_US\.utf-?8$/i.test(name);
}

/** Checks what the spec's providers need; without one for a GPU, what CUDA and WebGPU need. */
async function partsOfAll(asked: readonly Provider[], machine: Machine, deviceId: number): Promise<readonly Part[]> {
  const gpus = asked.filter((provider) => provider !== "cpu" && !(provider === "cuda" && asked.includes("tensorrt")));
  const checked: readonly Provider[] = gpus.length > 0 ? gpus : ["cuda", "webgpu"];
  const found = new Map<string, Part>();
  for (const provider of checked) {
    for (const part of await partsOf(provider, machine, deviceId)) {
      // Providers share parts: CUDA needs a GPU of NVIDIA where WebGPU takes any.
      if (!found.has(part.name) || part.state === "missing") {
        found.set(part.name, part);
      }
    }
  }
  return [...found.values()];
}

/** Returns the providers that the spec asks for or that are installed. */
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

/**
 * Returns the provider that a run would use, chosen as `openEngine` does: a missing provider ends a run unless cpu is
 * listed. A provider that exists and fails is used, and ends the run.
 */
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
