import { join } from "node:path";
import type { DuckDb } from "../duckdb/instance.js";
import { errnoOf, JobError } from "../errors.js";
import { spanCount } from "../plan/spans.js";
import type { Compression } from "../spec/job-spec.js";
import { listFolder, refuseForeign } from "./claim.js";
import { guarded, hasHardLinks, makeFolder, orDrop } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import { isStaged, layoutOf } from "./layout.js";
import { commitPart } from "./parquet-commit.js";
import { checkFinished, type FinishedPart, type Manifest, writeFinish } from "./parquet-finish.js";
import { type CommittedPart, inspectParts, listParts } from "./parquet-parts.js";
import { readRejects } from "./parquet-rejects.js";
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
  const manifest = await checkFinished(fs, layout, stored, await listFolder(fs, folder));
  if (manifest !== undefined) {
    await settle(fs, folder);
  }
  const known: Known = { committed: new Uint8Array(spanCount(stored.plan)), parts: new Map() };
  note(known, manifest === undefined ? await inspectParts(duckdb, stored, await listParts(fs, layout)) : of(manifest));
  const own = new Map<number, FinishedPart>();
  const check = planCheck(fs, layout, stored.planId);
  const staged = isStaged(runId) ? [layout.parts] : [];
  const temporary = { fs, folders: [layout.temporary, ...staged], check };
  let maker: Maker | undefined;
  const refresh = async (): Promise<void> => {
    const paths = await listParts(fs, layout);
    // Looked at again, those of others too: what is published now must be whole now.
    const others = new Map([...paths].filter(([span]) => !own.has(span)));
    note(known, await inspectParts(duckdb, stored, others));
  };
  return {
    finished: manifest !== undefined,
    committed: known.committed,
    get rejectedRows() {
      return [...known.parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
    },
    get makers() {
      return new Map([...known.parts].map(([span, part]) => [span, part.maker]));
    },
    rejects: () => readRejects(fs, layout, known.parts),
    refresh: () => guarded(`looking at ${folder}`, refresh),
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
        const file = join(layout.temporary, `part-${span.index}.${writer}`);
        const { outcome, part } = await inTemporary(temporary, () => orDrop(fs, file, () => commitPart(commit, file)));
        own.set(span.index, part);
        note(known, new Map([[span.index, part]]));
        return outcome;
      }),
    finish: () =>
      guarded(`finishing ${folder}`, async () => {
        const folders = staged.length > 0 ? [...temporary.folders, layout.withdrawn] : temporary.folders;
        await inTemporary({ ...temporary, folders }, async () => {
          await refuseForeign(fs, layout);
          if (staged.length > 0 && (await isFinished())) {
            return;
          }
          await refresh();
          await writeFinish(fs, { layout, stored, writer, parts: own, committed: known.parts });
        });
      }),
  };

  /** By an attempt beside this one: a new run's parts are in place then, and not staged any more. */
  async function isFinished(): Promise<boolean> {
    return (await checkFinished(fs, layout, stored, await listFolder(fs, folder))) !== undefined;
  }
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
