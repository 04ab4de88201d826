import { basename, join } from "node:path";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Compression } from "../../../spec/parquet-spec.js";
import type { RunId } from "../../../plan/plan.js";
import type { Opening } from "../../../publish/opening.js";
import type { RunSink, StoredPlan } from "../../port.js";
import type { RunNotes } from "../../run-notes.js";
import type { SmallFiles } from "../common/failures.js";
import { type FileSystem, ifThere } from "../common/file-system.js";
import { encodePiece } from "../common/commit.js";
import type { OpenKeyDuckDb } from "../common/key-counts.js";
import { type Layout, layoutOf, plannedLayout } from "../common/layout.js";
import { inspectParts, readProfiles, requireUndamaged } from "../common/parts.js";
import { runNotes } from "../common/run-notes.js";
import { openRun, type Publisher } from "../common/run-sink.js";
import { planCheck } from "../common/stored-plan.js";
import { commitPart, type DiskTarget } from "./commit.js";
import { answerFiles } from "./answers.js";
import { createDurably, guarded, hasHardLinks, makeFolder, makeRunFolder, orRemove, refuseLinks } from "./durable.js";
import { writeFinish } from "./finish.js";
import { clearEarlier, clearRun } from "./past-runs.js";
import { withdrawnBy } from "./swap.js";
import { withFolders, type LeftoverRules, removeLeftovers, type Temporary } from "./temporary.js";

export interface ParquetRunOptions extends LeftoverRules {
  /** Absolute path of the output folder. */
  readonly folder: string;
  readonly compression: Compression;
  readonly fs: FileSystem;
  /** Writes and reads parts. */
  readonly duckdb: DuckDbAccess;
  /** Opens a DuckDB that reads parts, for `checks.unique`. */
  readonly openKeyDuckDb: OpenKeyDuckDb;
  /** Warns the user of what needs no action. */
  readonly warn: (message: string) => void;
}

export async function openParquetRun(options: ParquetRunOptions, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  const { fs, folder, writer, duckdb } = options;
  const layout = plannedLayout(folder, stored.plan);
  const check = planCheck(fs, layout, stored.planId);
  const inspect: DiskTarget["inspect"] = async (paths) =>
    requireUndamaged(stored, await inspectParts(duckdb, stored, paths), how);
  const profiles: DiskTarget["profiles"] = (paths) => readProfiles(duckdb, paths);
  const target: DiskTarget = { fs, inspect, profiles, layout, stored, check };
  return await openRun(target, diskPublisher(options, target), writer);
}

function diskPublisher(options: ParquetRunOptions, target: DiskTarget): Publisher {
  const { fs, folder, writer, duckdb, compression } = options;
  const { layout, stored, check } = target;
  const { staged } = layout;
  const temporary = { fs, folders: [layout.temporary, ...(staged ? [layout.parts] : [])], check };
  const withdrawn = staged ? [layout.withdrawn, withdrawnBy(layout, writer)] : [];
  return {
    guarded: guarded,
    prepare: (workers) => prepare(options, { target, temporary }, workers),
    answers: answerFiles(target),
    spill: {
      pathOf: ({ index }, piece) => join(layout.temporary, `piece-${index}-${piece}.${writer}`),
      encode: (rows, path) => withFolders(temporary, () => orRemove(fs, path, () => encodePiece(options, rows, path))),
      remove: (path) => fs.unlink(path),
    },
    openKeyDuckDb: options.openKeyDuckDb,
    partsFolder: folder,
    localParts: async function* (paths) {
      yield* paths.length === 0 ? [] : [paths];
    },
    async commit({ span, ...output }) {
      const commit = { duckdb, compression, stored, span, target, ...output };
      const file = join(layout.temporary, `part-${span.index}.${writer}`);
      return await withFolders(temporary, () => orRemove(fs, file, () => commitPart(commit, file)));
    },
    finishing: (work) => withFolders({ ...temporary, folders: [...temporary.folders, ...withdrawn] }, work),
    createOnce: (final, text) => withFolders(temporary, () => createIn(fs, layout, { writer, final, text })),
    smallFiles: () => smallFiles(fs, layout, writer),
    isDead: options.isDead,
    away: undefined,
    publish: (run) => writeFinish(fs, { layout, stored, writer, check, ...run }),
    flushFinish: () => flushFinish(fs, folder),
    clear: () => clearRun(fs, layout),
    clearEarlier: () => clearEarlier(fs, layout),
  };
}

/** Creates a file of a run durably, unless it is there. The run's temporary folder must exist. */
async function createIn(
  fs: FileSystem,
  layout: Layout,
  { writer, final, text }: { readonly writer: string; readonly final: string; readonly text: string },
): Promise<void> {
  await createDurably(fs, { temporary: join(layout.temporary, `${basename(final)}.${writer}`), final, text });
}

/** Notes on a run that is not planned yet, so that no later run can supersede it. */
export function notesBeforePlan({ fs, folder, writer }: ParquetRunOptions, runId: RunId): RunNotes {
  const layout = layoutOf(folder, runId);
  const createOnce = async (final: string, text: string): Promise<void> => {
    await makeRunFolder(fs, layout);
    await withFolders({ fs, folders: [layout.temporary], check: () => Promise.resolve() }, () =>
      createIn(fs, layout, { writer, final, text }),
    );
  };
  return runNotes({ fs, layout }, { guarded, createOnce }, writer);
}

function smallFiles(fs: FileSystem, layout: Layout, writer: string): SmallFiles {
  return {
    exists: async (path) => (await ifThere(fs.sizeOf(path))) !== undefined,
    read: (path) => ifThere(fs.readText(path)),
    async replace(path, text) {
      await refuseLinks(layout);
      const temporary = `${path}.${writer}`;
      await orRemove(fs, temporary, async () => {
        await fs.writeText(temporary, text);
        await fs.rename(temporary, path);
      });
    },
  };
}

async function prepare(
  options: ParquetRunOptions,
  { target: { fs, layout }, temporary }: { target: DiskTarget; temporary: Temporary },
  workers: number,
): Promise<void> {
  await refuseLinks(layout);
  // The attempt that planned the run may have died before it flushed the plan's name: parts must not outlive it.
  await fs.sync(layout.control);
  await clearEarlier(fs, layout); // late attempts of earlier runs may have left files
  if (layout.staged) {
    await makeFolder(fs, layout.parts);
  }
  const linked = await withFolders(temporary, async () => {
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
  warn(
    `${folder} has no hard links: files are renamed into place, so attempts at once could replace each other's parts and keys; run only one worker at a time`,
  );
}

/** Flushes the folder's names: the attempt that wrote `_SUCCESS` may have died before it did. */
async function flushFinish(fs: FileSystem, folder: string): Promise<void> {
  await fs.sync(folder).catch((error: unknown) => {
    // A read-only archive has nothing to flush.
    if (!["EROFS", "EINVAL"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  });
}
