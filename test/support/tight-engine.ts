import { type AttemptOptions, openJob } from "#src/job/job-context.js";
import { openBatchLimitCache } from "#src/job/model-tools.js";
import type { Engine } from "#src/models/engine.js";
import { JobError } from "#src/base/errors.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";

/** What a device does on purpose. */
export interface Tightness {
  /** Rows that fit into its memory; asked with each batch. */
  readonly fits: () => number;
  /** The device fails for good; asked with each batch. */
  readonly broken?: () => boolean;
}

export interface TightEngine extends Engine {
  /** Rows of each batch that was tried, in order. */
  readonly tried: readonly number[];
  readonly renewals: number;
}

/**
 * An engine that computes as the real one does, and has a device with little memory: a batch that does not fit takes
 * all of it, so that nothing fits until the engine is renewed, as with ONNX Runtime's arena.
 */
function tightEngine(engine: Engine, { fits, broken = () => false }: Tightness): TightEngine {
  const { local } = engine;
  if (local === undefined) {
    throw new Error("an engine without a device");
  }
  const tried: number[] = [];
  let renewals = 0;
  let takenIn = -1; // which renewal
  let renewing = Promise.resolve();
  return {
    ...engine,
    provider: "cuda",
    local: {
      ...local,
      device: "cuda:0",
      async renew() {
        renewals += 1;
        renewing = local.renew();
        await renewing;
      },
    },
    tried,
    get renewals() {
      return renewals;
    },
    async run(request) {
      await renewing;
      const rows = request.inputs[0]?.dims[0] ?? 0;
      if (broken()) {
        throw new JobError("DEVICE", "scoring on cuda:0: CUDA failure 700: an illegal memory access was encountered");
      }
      tried.push(rows);
      takenIn = rows > fits() ? renewals : takenIn;
      if (takenIn === renewals) {
        const size = rows * 4096;
        const message = `BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size ${size}`;
        return { kind: "exhausted", message, inputs: request.inputs };
      }
      return await engine.run(request);
    },
  };
}

export interface TightRun {
  readonly report: RunReport | undefined;
  readonly error: unknown;
  readonly engine: TightEngine;
  readonly warnings: readonly string[];
}

/** Carries out a run on such a device. `batchLimits`: the folder of the batch limit cache. */
export async function runTight(
  spec: string,
  { batchLimits, attempt, ...tightness }: Tightness & { batchLimits: string; attempt?: Partial<AttemptOptions> },
): Promise<TightRun> {
  const warnings: string[] = [];
  const log = { info() {}, debug() {}, warn: (message: string) => warnings.push(message) };
  const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
  await using job = await openJob(spec, { param: [] }, { log, attempt: { ...alone, ...attempt } });
  let opened: TightEngine | undefined;
  const done = await runJob({
    ...job,
    batchLimits: openBatchLimitCache(log, batchLimits),
    openEngine: async (model, need) => {
      opened = tightEngine(await job.openEngine(model, need), tightness);
      return opened;
    },
  }).then(
    (report) => ({ report, error: undefined }),
    (error: unknown) => ({ report: undefined, error }),
  );
  if (opened === undefined) {
    throw done.error ?? new Error("the run needed no engine");
  }
  return { ...done, engine: opened, warnings };
}
