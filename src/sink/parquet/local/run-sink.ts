import { join } from "node:path";
import type { DuckDbAccess } from "../../../duckdb/instance.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { Compression } from "../../../spec/parquet-spec.js";
import { refuseForeign } from "../common/claim.js";
import { guarded, hasHardLinks, makeFolder, orDrop } from "./durable.js";
import type { FileSystem } from "../common/file-system.js";
import { knownOf, makersOf, note, noteOwn, rejectedRows, type Known } from "../common/known-parts.js";
import { isStaged, layoutOf } from "../common/layout.js";
import { commitPart, type DiskTarget } from "../common/commit.js";
import { writeFinish } from "./finish.js";
import { lookAt } from "../common/committed-parts.js";
import { inspectParts, wholeParts } from "../common/parts.js";
import { readRejects } from "../common/rejects.js";
import { withdrawnBy } from "./swap.js";
import { clearEarlier, clearRun } from "../common/past-runs.js";
import type { AttemptJson, Maker, RunSink, StoredPlan } from "../../port.js";
import { planCheck } from "../common/stored-plan.js";
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
  const { fs, folder, writer, duckdb, compression } = options;
  const layout = layoutOf(folder, stored.plan.runId);
  const check = planCheck(fs, layout, stored.planId);
  const inspect: DiskTarget["inspect"] = async (paths) => wholeParts(await inspectParts(duckdb, stored, paths));
  const target: DiskTarget = { fs, inspect, layout, stored, check };
  const { finished, parts } = await lookAt(target, () => true);
  await (finished ? settle(fs, folder) : undefined);
  const known = knownOf(stored, parts);
  const staged = isStaged(stored.plan.runId) ? [layout.parts] : [];
  const temporary = { fs, folders: [layout.temporary, ...staged], check };
  let maker: Omit<Maker, "batchSize"> | undefined;
  return {
    finished,
    committed: known.committed,
    get rejectedRows() {
      return rejectedRows(known);
    },
    get makers() {
      return makersOf(known);
    },
    rejects: () => readRejects(fs, layout, known.parts),
    unfit: () => [], // a part has the columns' own types
    refresh: () =>
      guarded(`looking at ${folder}`, async () => {
        note(known, (await lookAt(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      guarded(`preparing ${folder}`, async () => {
        await prepare(options, { target, temporary }, attempt.workers);
        maker = { writer, ...attempt };
      }),
    commit: (span, output) =>
      guarded(`writing ${layout.committedPart(span.index)}`, async () => {
        if (maker === undefined) {
          throw new Error("a span is committed before the run has begun");
        }
        const commit = { duckdb, compression, maker, stored, span, output, target };
        const file = join(layout.temporary, `part-${span.index}.${writer}`);
        const { outcome, part } = await inTemporary(temporary, () => orDrop(fs, file, () => commitPart(commit, file)));
        noteOwn(known, part);
        return outcome;
      }),
    tidy: () => tidyUp(target),
    finish: (attempt) => guarded(`finishing ${folder}`, () => finishRun({ target, temporary, known, writer, attempt })),
    failed: () => Promise.resolve(),
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

interface Finishing {
  readonly target: DiskTarget;
  readonly temporary: Temporary;
  readonly known: Known;
  readonly writer: string;
  readonly attempt: AttemptJson | undefined;
}

async function finishRun({ target, temporary, known, writer, attempt }: Finishing): Promise<void> {
  const { fs, layout, stored, check } = target;
  const staged = isStaged(layout.runId);
  const withdrawn = staged ? [layout.withdrawn, withdrawnBy(layout, writer)] : [];
  await inTemporary({ ...temporary, folders: [...temporary.folders, ...withdrawn] }, async () => {
    await refuseForeign(fs, layout);
    // Those of others are looked at again: what is published now must be whole now.
    const now = await lookAt(target, (span) => !known.own.has(span));
    if (now.finished && staged) {
      // By an attempt beside this one: the parts are in place, and not staged any more.
      await clearRun(fs, layout);
      return;
    }
    note(known, now.parts);
    await writeFinish(fs, { layout, stored, writer, parts: known.own, committed: known.parts, check, attempt });
  });
}

/** Nothing rests on it: what cannot be removed, as in an archive, stays. */
async function tidyUp({ fs, layout }: DiskTarget): Promise<void> {
  try {
    await clearRun(fs, layout);
    await clearEarlier(fs, layout);
  } catch {
    // The run is complete all the same.
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

/** A finished run is told to the world: whoever wrote `_SUCCESS` may have died before its name was flushed. */
async function settle(fs: FileSystem, folder: string): Promise<void> {
  await fs.sync(folder).catch((error: unknown) => {
    // An archive that cannot be written to has nothing to flush.
    if (!["EROFS", "EINVAL"].includes(errnoOf(error) ?? "")) {
      throw error;
    }
  });
}
