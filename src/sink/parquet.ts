import { basename, join } from "node:path";
import type { OutputRows, RejectedRow } from "../batch/types.js";
import { type DuckDb, firstLine, openDuckDb } from "../duckdb/instance.js";
import { errnoOf, JobError, messageOf } from "../errors.js";
import type { Span } from "../plan/plan.js";
import type { Compression } from "../spec/job-spec.js";
import { claimFolder, listFolder, refuseForeign } from "./claim.js";
import { createDurably, diskError, ensureFolder, hasHardLinks, makeFolder, orDrop, publish } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import { type Layout, layoutOf } from "./layout.js";
import { checkFinished, type FinishedPart, type Manifest, writeFinish } from "./parquet-finish.js";
import { type CommittedParts, inspectParts } from "./parquet-parts.js";
import { readRejects, writeRejects } from "./parquet-rejects.js";
import { writePart } from "./part-file.js";
import type { CommitOutcome, RunSink, Sink, StoredPlan } from "./port.js";
import { planCheck, readPlan, sealedText, standingPlan } from "./standing-plan.js";

export interface ParquetSinkOptions {
  /** Absolute. Need not exist. */
  readonly folder: string;
  /** How messages and reports name it. */
  readonly target: string;
  readonly compression: Compression;
  readonly threads: number;
  readonly fs: FileSystem;
  /** Names this attempt's temporary files: unique among all attempts on all machines. */
  readonly writer: string;
  /** Whether the process that named its files so has ended; unknown: false. */
  readonly isDead: (writer: string) => boolean;
  /** Told of what a user should know and need not act on. */
  readonly warn: (message: string) => void;
}

/** One Parquet file a span, whose appearance under its final name is the commit. */
export async function openParquetSink(options: ParquetSinkOptions): Promise<Sink> {
  const { folder, fs } = options;
  const duckdb = await openDuckDb({ threads: options.threads, allowed: { folders: [folder] } });
  return {
    target: options.target,
    async find(runId) {
      return await guard(`looking at ${folder}`, async () => {
        const layout = layoutOf(folder, runId);
        const stored = await readPlan(fs, layout.plan);
        await refuseForeign(fs, layout, runId);
        return stored;
      });
    },
    async create(plan) {
      const layout = layoutOf(folder, plan.runId);
      return await guard(`writing the plan to ${layout.plan}`, async () => {
        await makeFolder(fs, layout.control);
        const check = async (): Promise<unknown> => await standingPlan(fs, layout);
        await inTemporary({ fs, layout, check }, async () => {
          await claimFolder(fs, layout, plan.runId, options.writer);
          const temporary = join(layout.temporary, `plan.${options.writer}`);
          await createDurably(fs, { temporary, final: layout.plan, text: sealedText(plan) });
        });
        return await standingPlan(fs, layout);
      });
    },
    open: (stored) => guard(`looking at ${folder}`, () => openRun(options, duckdb, stored)),
    async [Symbol.asyncDispose]() {
      duckdb[Symbol.dispose]();
    },
  };
}

async function guard<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw diskError(doing, error);
  }
}

async function openRun(options: ParquetSinkOptions, duckdb: DuckDb, stored: StoredPlan): Promise<RunSink> {
  const { fs, folder, writer } = options;
  const layout = layoutOf(folder, stored.plan.runId);
  const names = await listFolder(fs, folder);
  const manifest = await checkFinished(fs, layout, stored, names);
  const { committed, rejected } =
    manifest === undefined ? await inspectParts(duckdb, layout, stored, names) : committedBy(manifest);
  const parts = new Map<number, FinishedPart>();
  const check = planCheck(fs, layout, stored.planId);
  const temporary = { fs, layout, check };
  if (manifest !== undefined) {
    await settle(fs, folder);
  }
  return {
    finished: manifest !== undefined,
    committed,
    rejectedRows: [...rejected.values()].reduce((sum, count) => sum + count, 0),
    rejects: () => readRejects(fs, layout, rejected),
    begin: () =>
      guard(`preparing ${folder}`, async () => {
        // Whoever planned the run may have died before the plan's name was flushed: parts must not outlive it.
        await fs.sync(layout.control);
        const linked = await inTemporary(temporary, async () => {
          await removeLeftovers(fs, layout.temporary, options);
          return await hasHardLinks(fs, layout.temporary, writer);
        });
        if (!linked) {
          options.warn(`${folder} has no hard links: parts are renamed into place, so run only one worker at a time`);
        }
      }),
    commit: (span, rows, rejects) =>
      guard(`writing ${join(folder, layout.part(span.index))}`, async () => {
        const commit = { options, duckdb, layout, stored, span, rows, rejects, check };
        const file = join(layout.temporary, `part-${span.index}.${writer}`);
        const { outcome, part } = await inTemporary(temporary, () => orDrop(fs, file, () => commitPart(commit, file)));
        parts.set(span.index, part);
        return outcome;
      }),
    finish: () =>
      guard(`finishing ${folder}`, async () => {
        await check();
        await refuseForeign(fs, layout, stored.plan.runId);
        // What others committed was looked at when this attempt began: what is published now must be whole now.
        const others = (await listFolder(fs, folder)).filter((name) => !parts.has(layout.spanOf(name) ?? -1));
        await inspectParts(duckdb, layout, stored, others);
        await inTemporary(temporary, () => writeFinish(fs, { layout, stored, writer, parts, rejected }));
      }),
  };
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

function committedBy({ parts }: Manifest): CommittedParts {
  return {
    committed: new Uint8Array(parts.length).fill(1),
    rejected: new Map(parts.map(({ span, rejected }) => [span, rejected])),
  };
}

interface Temporary {
  readonly fs: FileSystem;
  readonly layout: Layout;
  /** Throws when the run that the folder was for is no more. */
  readonly check: () => Promise<unknown>;
}

/** More than attempts that could finish one run within the same few milliseconds. */
const clearedAwayLimit = 100;

/**
 * Does `work` with the temporary folder there. Whoever finishes the run clears that folder away, from under the
 * hands of attempts beside it: they do their step again, which is safe for every step. Anything else that is
 * gone was removed by somebody who should not have, and stays gone.
 */
async function inTemporary<T>({ fs, layout, check }: Temporary, work: () => Promise<T>): Promise<T> {
  for (let cleared = 0; ; cleared += 1) {
    try {
      await ensureFolder(fs, layout.temporary);
      return await work();
    } catch (error) {
      if (!isCleared(error, layout) || cleared === clearedAwayLimit) {
        throw error;
      }
      await check();
    }
  }
}

function isCleared(error: unknown, { temporary }: Layout): boolean {
  const path = error instanceof Error && "path" in error ? String(error.path) : "";
  return errnoOf(error) === "ENOENT" && path.startsWith(temporary);
}

/** Temporary files of attempts that died. Their names say whose they are; those of the living stay. */
async function removeLeftovers(fs: FileSystem, folder: string, options: ParquetSinkOptions): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    const owner = name.slice(name.indexOf(".") + 1); // every name here is `<what>.<writer>`
    if (owner !== options.writer && options.isDead(owner)) {
      await fs.unlink(join(folder, name)).catch((error: unknown) => {
        if (errnoOf(error) !== "ENOENT") {
          throw error;
        }
      });
    }
  }
}

interface PartCommit {
  readonly options: ParquetSinkOptions;
  readonly duckdb: DuckDb;
  readonly layout: Layout;
  readonly stored: StoredPlan;
  readonly span: Span;
  readonly rows: OutputRows;
  readonly rejects: readonly RejectedRow[];
  /** Throws when another plan stands at the target. */
  readonly check: () => Promise<void>;
}

/** The rejects first, then the part, whose appearance commits both. */
async function commitPart(
  commit: PartCommit,
  temporary: string,
): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { options, duckdb, layout, stored, span, rows, rejects } = commit;
  const { fs } = options;
  const name = layout.part(span.index);
  const final = join(layout.folder, name);
  const { index, rowStart, rowEnd } = span;
  const label = {
    runId: stored.plan.runId,
    planId: stored.planId,
    span: index,
    rowStart,
    rowEnd,
    rejected: rejects.length,
  };
  const written = await encode(duckdb, { path: temporary, rows, label, compression: options.compression });
  if (written !== rows.rowCount || written + rejects.length !== rowEnd - rowStart) {
    throw new Error(`${written} rows were written and ${rejects.length} rejected for a span of ${rowEnd - rowStart}`);
  }
  await commit.check();
  await writeRejects(fs, { layout, span: index, rejects, writer: options.writer });
  const part = { file: name, span: index, rows: written, rejected: rejects.length, ...(await fs.digest(temporary)) };
  if ((await publish(fs, temporary, final)) === "published") {
    return { outcome: "committed", part };
  }
  // First writer wins. Theirs must be this span of this plan; bytes may differ.
  const theirs = (await inspectParts(duckdb, layout, stored, [name])).rejected.get(index) ?? 0;
  const adopted = { file: name, span: index, rows: rowEnd - rowStart - theirs, rejected: theirs };
  return { outcome: "adopted", part: { ...adopted, ...(await fs.digest(final)) } };
}

/** DuckDB gives the errno's text only. */
const errnoTexts: Readonly<Record<string, string>> = {
  ENOENT: "No such file or directory",
  ENOSPC: "No space left on device",
  EDQUOT: "Disk quota exceeded",
  EIO: "Input/output error",
  EROFS: "Read-only file system",
  EACCES: "Permission denied",
};

async function encode(duckdb: DuckDb, part: Parameters<typeof writePart>[1]): Promise<number> {
  try {
    return await writePart(duckdb, part);
  } catch (error) {
    const message = firstLine(messageOf(error));
    const code = Object.keys(errnoTexts).find((errno) => message.includes(errnoTexts[errno] ?? ""));
    if (code !== undefined) {
      throw Object.assign(new Error(message, { cause: error }), { code, path: part.path });
    }
    throw new JobError(
      message.startsWith("Out of Memory Error") ? "MEMORY" : "DISK",
      `writing ${basename(part.path)}: ${message}`,
      {
        hint: "run the same command again; committed spans are kept",
        cause: error,
      },
    );
  }
}
