import { join } from "node:path";
import type { DuckDb } from "../duckdb/instance.js";
import { errnoOf, JobError } from "../errors.js";
import { spanCount } from "../plan/spans.js";
import type { Compression } from "../spec/job-spec.js";
import { refuseForeign, sizeIfThere } from "./claim.js";
import { guarded, hasHardLinks, makeFolder } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import { isStaged, type Layout, layoutOf } from "./layout.js";
import { commitPart } from "./parquet-commit.js";
import { checkFinished, clearStaging, type FinishedPart, type Manifest, writeFinish } from "./parquet-finish.js";
import { type CommittedPart, inspectParts, listParts } from "./parquet-parts.js";
import { readRejects } from "./parquet-rejects.js";
import { withdrawnBy } from "./parquet-swap.js";
import type { Maker, RunSink, StoredPlan } from "./port.js";
import { planCheck } from "./standing-plan.js";
import { inTemporary, type LeftoverRules, removeLeftovers } from "./temporary.js";

export interface ParquetRunOptions extends LeftoverRules {
  /** Absolute. */
  readonly folder: string;
  readonly compression: Compression;
  readonly fs: FileSystem;
  /** Told of what a user should know and need not act on. */
  readonly warn: (message: string) => void;
}

/** What is known of a run's spans. */
interface Known {
  readonly committed: Uint8Array;
  readonly parts: Map<number, CommittedPart>;
}

export async function openParquetRun(options: ParquetRunOptions, duckdb: DuckDb, stored: StoredPlan): Promise<RunSink> {
  const { fs, folder, writer, compression } = options;
  const { runId } = stored.plan;
  const layout = layoutOf(folder, runId);
  const check = planCheck(fs, layout, stored.planId);
  const target: Target = { fs, duckdb, layout, stored, check };
  const { finished, parts } = await lookAt(target, () => true);
  if (finished) {
    await settle(fs, folder);
  }
  const known: Known = { committed: new Uint8Array(spanCount(stored.plan)), parts: new Map() };
  note(known, parts);
  const own = new Map<number, FinishedPart>();
  const staged = isStaged(runId) ? [layout.parts] : [];
  const temporary = { fs, folders: [layout.temporary, ...staged], check };
  let maker: Maker | undefined;
  return {
    finished,
    committed: known.committed,
    get rejectedRows() {
      return [...known.parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
    },
    get makers() {
      return new Map([...known.parts].map(([span, part]) => [span, part.maker]));
    },
    rejects: () => readRejects(fs, layout, known.parts),
    refresh: () =>
      guarded(`looking at ${folder}`, async () => {
        note(known, (await lookAt(target, (span) => !known.parts.has(span))).parts);
      }),
    begin: (attempt) =>
      guarded(`preparing ${folder}`, async () => {
        // Whoever planned the run may have died before the plan's name was flushed: parts must not outlive it.
        await fs.sync(layout.control);
        maker = { writer, ...attempt };
        if (staged.length > 0) {
          await makeFolder(fs, layout.parts);
        }
        const linked = await inTemporary(temporary, async () => {
          await removeLeftovers(fs, layout.temporary, options);
          return await hasHardLinks(fs, layout.temporary, writer);
        });
        if (!linked) {
          oneWorkerOnly(options, attempt.workers);
        }
      }),
    commit: (span, output) =>
      guarded(`writing ${join(layout.parts, layout.part(span.index))}`, async () => {
        if (maker === undefined) {
          throw new Error("a span is committed before the run has begun");
        }
        const commit = { fs, duckdb, compression, maker, layout, stored, span, output, check };
        const { outcome, part } = await inTemporary(temporary, () => commitPart(commit));
        own.set(span.index, part);
        note(known, new Map([[span.index, part]]));
        return outcome;
      }),
    finish: () =>
      guarded(`finishing ${folder}`, async () => {
        const withdrawn = staged.length > 0 ? [layout.withdrawn, withdrawnBy(layout, writer)] : [];
        await inTemporary({ ...temporary, folders: [...temporary.folders, ...withdrawn] }, async () => {
          await refuseForeign(fs, layout);
          // Those of others are looked at again: what is published now must be whole now.
          const now = await lookAt(target, (span) => !own.has(span));
          if (now.finished && staged.length > 0) {
            // By an attempt beside this one: the parts are in place, and not staged any more.
            await clearStaging(fs, layout);
            return;
          }
          note(known, now.parts);
          await writeFinish(fs, { layout, stored, writer, parts: own, committed: known.parts, check });
        });
      }),
  };
}

interface Target {
  readonly fs: FileSystem;
  readonly duckdb: DuckDb;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  readonly check: () => Promise<void>;
}

/** More than moves of a part: from where it was staged to where it stays. */
const looksLimit = 10;

/**
 * Whether the run is finished, and its parts: of one that is not, those that `wanted` names. An attempt beside this
 * one may move them meanwhile, and one of a later run take them away.
 */
async function lookAt(
  { fs, duckdb, layout, stored, check }: Target,
  wanted: (span: number) => boolean,
): Promise<{ finished: boolean; parts: Map<number, CommittedPart> }> {
  for (let looks = 1; ; looks += 1) {
    let paths = new Map<number, string>();
    try {
      const manifest = await checkFinished(fs, layout, stored);
      if (manifest !== undefined) {
        return { finished: true, parts: of(manifest) };
      }
      paths = new Map([...(await listParts(fs, layout))].filter(([span]) => wanted(span)));
      return { finished: false, parts: await inspectParts(duckdb, stored, paths) };
    } catch (error) {
      await check();
      if (looks === looksLimit || !(await isAnyGone(fs, paths.values()))) {
        throw error;
      }
    }
  }
}

async function isAnyGone(fs: FileSystem, paths: Iterable<string>): Promise<boolean> {
  for (const path of paths) {
    if ((await sizeIfThere(fs, path)) === undefined) {
      return true;
    }
  }
  return false;
}

function note(known: Known, parts: ReadonlyMap<number, CommittedPart>): void {
  for (const [span, { rejected, filtered, maker }] of parts) {
    known.committed[span] = 1;
    known.parts.set(span, { rejected, filtered, maker });
  }
}

function of({ parts }: Manifest): Map<number, CommittedPart> {
  return new Map(parts.map(({ span, rejected, filtered, maker }) => [span, { rejected, filtered, maker }]));
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
