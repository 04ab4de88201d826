import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "../../base/zod.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import type { Provider } from "../../job/jobfile/engine-spec.js";

const kernelEvents = z.array(
  z.object({
    name: z.string(),
    args: z.looseObject({ provider: z.string().optional(), op_name: z.string().optional() }).optional(),
  }),
);

const providerNames: Readonly<Record<string, Provider>> = {
  CPUExecutionProvider: "cpu",
  CUDAExecutionProvider: "cuda",
  TensorrtExecutionProvider: "tensorrt",
  WebGpuExecutionProvider: "webgpu",
  CoreMLExecutionProvider: "coreml",
  DmlExecutionProvider: "dml",
};

/** Counts operators by the provider that ran them, from ONNX Runtime's profiles in a folder; copies are not counted. */
export async function operatorsByProvider(folder: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  const seen = new Set<string>();
  for (const file of await readdir(folder)) {
    const events = kernelEvents.safeParse(parseJson(await readFile(join(folder, file), "utf8")));
    for (const { name, args } of events.success ? events.data : []) {
      // Each operator appears once a batch.
      const isOperator =
        name.endsWith("_kernel_time") && args?.op_name?.startsWith("Memcpy") === false && !seen.has(name);
      if (isOperator && args?.provider !== undefined) {
        seen.add(name);
        const provider = providerNames[args.provider] ?? args.provider;
        counts[provider] = (counts[provider] ?? 0) + 1;
      }
    }
  }
  return counts;
}
