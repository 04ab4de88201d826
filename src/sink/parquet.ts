import { join } from "node:path";
import { openDuckDb } from "../duckdb/instance.js";
import { claimFolder, refuseForeign } from "./claim.js";
import { createDurably, guarded, makeFolder } from "./durable.js";
import { layoutOf } from "./layout.js";
import { openParquetRun, type ParquetRunOptions } from "./parquet-run.js";
import type { Sink } from "./port.js";
import { findUnfinished } from "./siblings.js";
import { latestRun, readPlan, sealedText, standingPlan } from "./standing-plan.js";
import { inTemporary } from "./temporary.js";

/** `folder` need not exist. `writer` names this attempt's temporary files: unique among all on all machines. */
export interface ParquetSinkOptions extends ParquetRunOptions {
  /** How messages and reports name the folder. */
  readonly target: string;
  readonly threads: number;
  /** Where the job's other runs lie: segments of an absolute path. */
  readonly siblings: readonly (string | RegExp)[];
}

/** One Parquet file a span, whose appearance under its final name is the commit. */
export async function openParquetSink(options: ParquetSinkOptions): Promise<Sink> {
  const { folder, fs } = options;
  const duckdb = await openDuckDb({ threads: options.threads, allowed: { folders: [folder] } });
  return {
    target: options.target,
    async find(base) {
      return await guarded(`looking at ${folder}`, async () => {
        const layout = layoutOf(folder, await latestRun(fs, folder, base));
        const stored = await readPlan(fs, layout.plan);
        await refuseForeign(fs, layout);
        return stored;
      });
    },
    unfinished: async (job, base) => await findUnfinished(fs, options.siblings, { job, base }),
    async create(plan) {
      const layout = layoutOf(folder, plan.runId);
      return await guarded(`writing the plan to ${layout.plan}`, async () => {
        await makeFolder(fs, layout.control);
        await inTemporary({ fs, folders: [layout.temporary], check: nothingYet }, async () => {
          await claimFolder(fs, layout, options.writer);
          const temporary = join(layout.temporary, `plan.${options.writer}`);
          await createDurably(fs, { temporary, final: layout.plan, text: sealedText(plan) });
        });
        return await standingPlan(fs, layout);
      });
    },
    open: (stored) => guarded(`looking at ${folder}`, () => openParquetRun(options, duckdb, stored)),
    async [Symbol.asyncDispose]() {
      duckdb[Symbol.dispose]();
    },
  };
}

/** Before the plan stands there is nothing to be overtaken by. */
async function nothingYet(): Promise<void> {
  await Promise.resolve();
}
