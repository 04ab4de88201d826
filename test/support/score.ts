import { rm } from "node:fs/promises";
import { join } from "node:path";
import { type AttemptOptions, openJob } from "#src/job/open.js";
import type { Engine } from "#src/models/engine.js";
import type { Model } from "#src/models/places/place.js";
import type { RunReport } from "#src/report/report.js";
import type { EngineNeed, OpenedJob } from "#src/flow/opened-job.js";
import type { MemoryBudget } from "#src/base/memory-budget.js";
import { runJob } from "#src/run/run.js";
import { type CliResult, type HereOrApart, runCommand } from "./cli.js";
import { partNames, spanOfName } from "./output.js";

/** Carries out a run in this process: many runs a second, where no exit code is asked for. */
export async function scoreHere(
  spec: string,
  attempt: Partial<AttemptOptions> = {},
  shares: Partial<MemoryBudget> = {},
): Promise<RunReport> {
  await using job = await openJob(spec, { param: [] }, { attempt: { ...alone, ...attempt } });
  const memory = { ...job.memory, ...shares };
  return await runJob({
    ...job,
    memory,
    models: { ...job.models, openEngine: (model, need) => lendEngine(job, model, need) },
  });
}

interface Kept {
  readonly engine: Promise<Engine>;
  users: number;
}

/** By model, tokenizers and providers, the one that was used last at the end. */
const kept = new Map<string, Kept>();
const mostKept = 8;

/**
 * Starting a thread and loading a model into it takes half of what a run of a few hundred rows does: an engine of one
 * thread stays open for the next run over the same model, in another test, too.
 */
async function lendEngine({ job: { spec }, models }: OpenedJob, model: Model, need: EngineNeed): Promise<Engine> {
  const { threads, providers, trees } = spec.engine;
  if (threads !== 1 || "sessions" in need) {
    return await models.openEngine(model, need);
  }
  const tokenizers = "served" in model ? [] : model.tokenizers?.map(({ sha256 }) => sha256);
  const key = JSON.stringify([model.sha256, tokenizers, providers, trees]);
  const one = kept.get(key) ?? { engine: models.openEngine(model, need), users: 0 };
  kept.delete(key);
  kept.set(key, one);
  const giveUp = (error: unknown): never => {
    kept.delete(key);
    throw error;
  };
  const engine = await one.engine.catch(giveUp);
  await ("check" in model ? model.check() : undefined);
  one.users += 1;
  return {
    ...engine,
    run: (request) => engine.run(request).catch(giveUp),
    async [Symbol.asyncDispose]() {
      one.users -= 1;
      await closeOldest();
    },
  };
}

async function closeOldest(): Promise<void> {
  for (const [key, { engine, users }] of kept) {
    if (kept.size > mostKept && users === 0) {
      kept.delete(key);
      await (await engine)[Symbol.asyncDispose]();
    }
  }
}

export const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };

export function workerOf(index: number, count: number): Pick<AttemptOptions, "worker"> {
  return { worker: { index, count } };
}

/** Leaves of a finished run the spans that `keep` says, as if it had died. Returns the names of their parts. */
export async function leaveUnfinished(
  spec: string,
  folder: string,
  keep: (span: number) => boolean,
): Promise<string[]> {
  await scoreHere(spec);
  await rm(join(folder, "_SUCCESS"));
  await rm(join(folder, "_manifest.json"));
  for (const name of await partNames(folder)) {
    if (!keep(spanOfName(name))) {
      await rm(join(folder, name));
    }
  }
  return await partNames(folder);
}

/** The line that `run --json` ends with. */
export interface Summary {
  readonly status: string;
  readonly rows_planned: number;
  readonly rows_scored: number;
  readonly spans_planned: number;
  readonly spans_committed: number;
  readonly spans_resumed: number;
  readonly shards_unplanned: number;
}

interface RunSpecOptions extends HereOrApart {
  /** After those that are always given. */
  readonly args?: readonly string[];
}

/** Carries out `run` with `--json`; `summary` is there when it did not fail. */
export async function runSpec(
  spec: string,
  { args = [], ...options }: RunSpecOptions = {},
): Promise<CliResult & { readonly summary: Summary | undefined }> {
  const result = await runCommand(["run", spec, "--json", "--no-progress", ...args], options);
  const last = result.stdout.trimEnd().split("\n").at(-1) ?? "";
  const summary = last === "" ? undefined : (JSON.parse(last) as Summary);
  return { ...result, summary: result.code === 0 ? summary : undefined };
}
