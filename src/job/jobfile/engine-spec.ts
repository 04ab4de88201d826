import { z } from "../../base/zod.js";
import { autoOrCount, autoOrSize, checking, countFrom, type Refuse } from "./values.js";

export interface EngineSpec {
  /** Execution providers in order of preference, each once, `cpu` last; auto: the first one of cuda, webgpu, coreml, dml and cpu that works. */
  readonly providers: readonly Provider[] | "auto";
  /** The number of the GPU among those that the process sees; `worker`: each worker takes the next one. */
  readonly device_id: number | "worker";
  readonly batch_size: number | "auto";
  readonly threads: number | "auto";
  readonly trees: "auto" | "onnxruntime";
  /** The memory budget for rows in flight, in bytes. It may differ between attempts. */
  readonly memory: number | "auto";
}

export type Provider = (typeof providerNames)[number];

export const providerNames = ["tensorrt", "cuda", "webgpu", "coreml", "dml", "cpu"] as const;

/** Returns the providers of a spec in order of preference; for `auto` the CPU, which works everywhere. */
export function listedProviders({ providers }: Pick<EngineSpec, "providers">): readonly Provider[] {
  return providers === "auto" ? ["cpu"] : providers;
}

/** Returns a loaded spec with other providers; with its own where `providers` is undefined. */
export function withProviders<T extends { readonly spec: { readonly engine: EngineSpec } }>(
  loaded: T,
  providers: EngineSpec["providers"] | undefined,
): T {
  const { spec } = loaded;
  return providers === undefined ? loaded : { ...loaded, spec: { ...spec, engine: { ...spec.engine, providers } } };
}

/** What an author whose providers may be missing is advised to write: the same ones, then the CPU. */
export function cpuListedLast(providers: readonly Provider[]): string {
  const listed = [...providers.filter((provider) => provider !== "cpu"), "cpu"];
  return `to score on CPUs where there is no GPU, list cpu last: providers: [${listed.join(", ")}]`;
}

const mostDevices = 128;
const deviceError = `expected worker or a number from 0 to ${mostDevices - 1}`;

const autoOrProviders = z
  .union([z.literal("auto"), z.array(z.enum(providerNames)).min(1).superRefine(checking(checkOrder))], {
    error: `expected auto or a list of ${providerNames.join(", ")}`,
  })
  .describe(
    "Execution providers of ONNX Runtime, in order of preference: cuda and tensorrt for NVIDIA GPUs on Linux, webgpu for any GPU, coreml on macOS, dml on Windows, cpu. One that this machine cannot run ends the run with exit code 64, unless cpu is listed last. auto: the first of cuda, webgpu, coreml, dml and cpu that works on this machine. A small model may be faster on the CPU: `run --provider cpu` tries it.",
  ) satisfies z.ZodType<EngineSpec["providers"]>;

export const engine = z.strictObject({
  providers: autoOrProviders.default(["cpu"]),
  device_id: z
    .union([z.literal("worker"), countFrom(0, mostDevices - 1)], { error: deviceError })
    .default(0)
    .describe(
      "GPU for cuda and tensorrt, counted among those that the process sees. With the value `worker`, each worker of a run takes another GPU: the process with --worker i/n takes GPU i, modulo the number of GPUs.",
    ),
  batch_size: autoOrCount(1, 1_048_576)
    .default("auto")
    .describe("Rows in one call of the model. auto measures sizes on the run's first batches."),
  threads: autoOrCount(1, 1024).default("auto").describe("CPU threads for inference, at most the number of cores."),
  trees: z
    .enum(["auto", "onnxruntime"])
    .default("auto")
    .describe(
      "What computes decision trees on CPUs. auto: this program's own code for trees, if it is faster for the model and gives the scores of ONNX Runtime; else ONNX Runtime.",
    ),
  memory: autoOrSize(64)
    .default("auto")
    .describe(
      "Memory for rows that are read, scored and written, such as 512MiB or 2GiB. The program and the model come on top of it. auto takes a quarter of the memory of the machine or container, at most 384MiB plus 64MiB for each core; with `reuse`, rows of the earlier run may take another eighth.",
    ),
}) satisfies z.ZodType<EngineSpec>;

/** Returns the providers of a text such as "webgpu", "cuda,cpu" or "auto"; undefined: it is none. */
export function parseProviders(text: string): EngineSpec["providers"] | undefined {
  return autoOrProviders.safeParse(text === "auto" ? text : text.split(",").map((name) => name.trim())).data;
}

/** ONNX Runtime uses the CPU only for operators that no other provider runs, even if `cpu` comes first. */
function checkOrder(providers: readonly Provider[], refuse: Refuse): void {
  for (const [index, provider] of providers.entries()) {
    if (providers.indexOf(provider) < index) {
      refuse([index], `\`${provider}\` is named twice`);
    }
  }
  const cpu = providers.indexOf("cpu");
  if (cpu !== -1 && cpu !== providers.length - 1) {
    refuse([cpu], "expected cpu last: it can take the place of all others");
  }
}
