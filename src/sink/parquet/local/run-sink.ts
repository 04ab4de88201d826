import { join } from "node:path";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Compression } from "../../../spec/parquet-spec.js";
import type { RunSink, StoredPlan } from "../../port.js";
import type { FileSystem } from "../common/file-system.js";
import { isStaged, layoutOf } from "../common/layout.js";
import { inspectParts, wholeParts } from "../common/parts.js";
import { openRun, type Publisher } from "../common/run-sink.js";
import { planCheck } from "../common/stored-plan.js";
import { commitPart, type DiskTarget } from "./commit.js";
import { guarded, hasHardLinks, makeFolder, orDrop } from "./durable.js";
import { writeFinish } from "./finish.js";
import { clearEarlier, clearRun } from "./past-runs.js";
import { withdrawnBy } from "./swap.js";
import { inTemporary, type LeftoverRules, removeLeftovers, type Temporary } from "./temporary.js";

export interface ParquetRunOptions extends LeftoverRules {
  /** Absolute. */
  readonly folder: string;
  readonly compression: Compression;
  readonly fs: FileSystem;
  /** To write and read parts with. */
  readonly duckdb: DuckDbAccess;
  /** Told of what a user should know and need not act on. */
  readonly warn: (message: string) => void;
}

export async function openParquetRun(options: ParquetRunOptions, stored: StoredPlan): Promise<RunSink> {
  const { fs, folder, writer, duckdb } = options;
  const layout = layoutOf(folder, stored.plan.runId);
  const check = planCheck(fs, layout, stored.planId);
  const inspect: DiskTarget["inspect"] = async (paths) => wholeParts(stored, await inspectParts(duckdb, stored, paths));
  const target: DiskTarget = { fs, inspect, layout, stored, check };
  return await openRun(target, diskPublisher(options, target), writer);
}

function diskPublisher(options: ParquetRunOptions, target: DiskTarget): Publisher {
  const { fs, folder, writer, duckdb, compression } = options;
  const { layout, stored, check } = target;
  const staged = isStaged(layout.runId);
  const temporary = { fs, folders: [layout.temporary, ...(staged ? [layout.parts] : [])], check };
  const withdrawn = staged ? [layout.withdrawn, withdrawnBy(layout, writer)] : [];
  return {
    telling: guarded,
    prepare: (workers) => prepare(options, { target, temporary }, workers),
    async commit({ span, output, maker }) {
      const commit = { duckdb, compression, maker, stored, span, output, target };
      const file = join(layout.temporary, `part-${span.index}.${writer}`);
      return await inTemporary(temporary, () => orDrop(fs, file, () => commitPart(commit, file)));
    },
    finishing: (work) => inTemporary({ ...temporary, folders: [...temporary.folders, ...withdrawn] }, work),
    publish: (run) => writeFinish(fs, { layout, stored, writer, check, ...run }),
    settle: () => settle(fs, folder),
    clear: () => clearRun(fs, layout),
    clearEarlier: () => clearEarlier(fs, layout),
  };
}

async function prepare(
  options: ParquetRunOptions,
  { target: { fs, layout }, temporary }: { target: DiskTarget; temporary: Temporary },
  workers: number,
): Promise<void> {
  // Whoever planned the run may have died before the plan's name was flushed: parts must not outlive it.
  await fs.sync(layout.control);
  await clearEarlier(fs, layout); // what attempts of runs before it, that came too late, may have left
  if (isStaged(layout.runId)) {
    await makeFolder(fs, layout.parts);
  }
  const linked = await inTemporary(temporary, async () => {
    await removeLeftovers(fs, layout.temporary, options);
    return await hasHardLinks(fs, layout.temporary, options.writer);
  });
  if (!linked) {
    oneWorkerOnly(options, workers);
  }
}

function oneWorkerOnly({ folder, warn }: ParquetRunOptions, workers: number): void {
  if (workers > 1) {
    throw new JobError("USAGE", `preparing ${folder}: it has no hard links, and ${workers} workers would share it`, {
      hint: "two workers could publish one part there; use one worker, or another file system for the output",
    });
  }
  warn(`${folder} has no hard links: parts are renamed into place, so run only one worker at a time`);
}

/** Flushes the folder's names: the attempt that wrote `_SUCCESS` may have died before it did. */
async function settle(fs: FileSystem, folder: string): Promise<void> {
  await fs.sync(folder).catch((error: unknown) => {
    // An archive that cannot be written to has nothing to flush.
    if (!["EROFS", "EINVAL"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  });
}
