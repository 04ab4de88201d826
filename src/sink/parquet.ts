import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import type { OutputRows } from "../batch/types.js";
import { type DuckDb, firstLine, openDuckDb } from "../duckdb/instance.js";
import { errnoOf, JobError, messageOf } from "../errors.js";
import { parsePlan, planToText } from "../plan/parse-plan.js";
import type { RunId, Span } from "../plan/plan.js";
import type { Compression } from "../spec/job-spec.js";
import { createDurably, diskError, hasHardLinks, makeFolder, publish } from "./durable.js";
import type { FileSystem } from "./file-system.js";
import { type Layout, layoutOf, runOfPart } from "./layout.js";
import { checkFinished, type FinishedPart, writeFinish } from "./parquet-finish.js";
import { inspectParts } from "./parquet-parts.js";
import { writePart } from "./part-file.js";
import type { CommitOutcome, RunSink, Sink, StoredPlan } from "./port.js";

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
        const temporary = join(layout.temporary, `plan.${options.writer}`);
        await inTemporary(fs, layout, () =>
          createDurably(fs, { temporary, final: layout.plan, text: planToText(plan) }),
        );
        const stored = await readPlan(fs, layout.plan);
        if (stored === undefined) {
          throw new JobError("OUTPUT_DAMAGED", `reading ${layout.plan}: it is gone right after it was written`, {
            hint: "is another program cleaning this folder?",
          });
        }
        return stored;
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

async function readPlan(fs: FileSystem, path: string): Promise<StoredPlan | undefined> {
  let text: string;
  try {
    text = await fs.readText(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return undefined;
    }
    throw error;
  }
  const plan = parsePlan(text);
  if (plan === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `reading ${path}: it is not a plan of this program`, {
      hint: "it was damaged or written by a newer version; restore it, or score into another folder",
    });
  }
  return { plan, planId: createHash("sha256").update(text).digest("hex") };
}

/** Files that nobody could tell from ours, or ours of another run: a reader would mix them up. */
async function refuseForeign(fs: FileSystem, layout: Layout, runId: RunId): Promise<void> {
  for (const name of await listFolder(fs, layout.folder)) {
    if (name.startsWith("_") || name.startsWith(".") || layout.spanOf(name) !== undefined) {
      continue;
    }
    const other = runOfPart(name);
    throw new JobError(
      "OUTPUT_FOREIGN",
      other === undefined
        ? `looking at ${layout.folder}: ${name} is there, which no run wrote`
        : `looking at ${layout.folder}: ${name} is there, a part of run ${other}, not of ${runId}`,
      {
        hint:
          other === undefined
            ? "output.parquet.path must be a folder of its own"
            : "give each run a folder of its own, such as out/dt=${ds}",
      },
    );
  }
}

async function listFolder(fs: FileSystem, folder: string): Promise<string[]> {
  try {
    return await fs.readdir(folder);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return [];
    }
    throw error;
  }
}

async function openRun(options: ParquetSinkOptions, duckdb: DuckDb, stored: StoredPlan): Promise<RunSink> {
  const { fs, folder, writer } = options;
  const layout = layoutOf(folder, stored.plan.runId);
  const names = await listFolder(fs, folder);
  const finished = await checkFinished(fs, layout, stored, names);
  const committed = finished
    ? new Uint8Array(Math.ceil(stored.plan.input.rows / stored.plan.commitRows)).fill(1)
    : await inspectParts(duckdb, layout, stored, names);
  const parts = new Map<number, FinishedPart>();
  let byRename = false;
  return {
    finished,
    committed,
    begin: () =>
      guard(`preparing ${folder}`, async () => {
        await inTemporary(fs, layout, async () => {
          await removeLeftovers(fs, layout.temporary, options);
          byRename = !(await hasHardLinks(fs, layout.temporary, writer));
        });
        if (byRename) {
          options.warn(`${folder} has no hard links: parts are renamed into place, so run only one worker at a time`);
        }
      }),
    commit: (span, rows) =>
      guard(`writing ${join(folder, layout.part(span.index))}`, async () => {
        const commit = { options, duckdb, layout, stored, span, rows, byRename };
        const { outcome, part } = await inTemporary(fs, layout, () => commitPart(commit));
        parts.set(span.index, part);
        return outcome;
      }),
    finish: () =>
      guard(`finishing ${folder}`, () =>
        inTemporary(fs, layout, () => writeFinish(fs, { layout, stored, writer, parts })),
      ),
  };
}

/** More than attempts that could finish one run within the same few milliseconds. */
const clearedAwayLimit = 100;

/**
 * Does `work` with the temporary folder there. Whoever finishes the run clears that folder away, from under the
 * hands of attempts beside it: they do their step again, which is safe for every step.
 */
async function inTemporary<T>(fs: FileSystem, { temporary }: Layout, work: () => Promise<T>): Promise<T> {
  for (let cleared = 0; ; cleared += 1) {
    try {
      await makeFolder(fs, temporary);
      return await work();
    } catch (error) {
      if (errnoOf(error) !== "ENOENT" || cleared === clearedAwayLimit) {
        throw error;
      }
    }
  }
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
  readonly byRename: boolean;
}

async function commitPart(commit: PartCommit): Promise<{ outcome: CommitOutcome; part: FinishedPart }> {
  const { options, duckdb, layout, stored, span, rows } = commit;
  const { fs } = options;
  const name = layout.part(span.index);
  const final = join(layout.folder, name);
  const temporary = join(layout.temporary, `part-${span.index}.${options.writer}`);
  const label = {
    runId: stored.plan.runId,
    planId: stored.planId,
    span: span.index,
    rowStart: span.rowStart,
    rowEnd: span.rowEnd,
  };
  const written = await encode(duckdb, { path: temporary, rows, label, compression: options.compression });
  if (written !== rows.rowCount || rows.rowCount !== span.rowEnd - span.rowStart) {
    throw new Error(`${written} of ${rows.rowCount} rows were written for a span of ${span.rowEnd - span.rowStart}`);
  }
  const part = { file: name, span: span.index, rows: written, ...(await fs.digest(temporary)) };
  if (commit.byRename) {
    await fs.sync(temporary);
    await fs.rename(temporary, final);
    await fs.sync(layout.folder);
    return { outcome: "committed", part };
  }
  if ((await publish(fs, temporary, final)) === "published") {
    return { outcome: "committed", part };
  }
  // First writer wins. Theirs must be this span of this plan; bytes may differ.
  await inspectParts(duckdb, layout, stored, [name]);
  return { outcome: "adopted", part: { file: name, span: span.index, rows: written, ...(await fs.digest(final)) } };
}

async function encode(duckdb: DuckDb, part: Parameters<typeof writePart>[1]): Promise<number> {
  try {
    return await writePart(duckdb, part);
  } catch (error) {
    const message = firstLine(messageOf(error));
    // DuckDB gives the errno's text only.
    const code = /No space left on device/.test(message)
      ? "ENOSPC"
      : /No such file or directory/.test(message)
        ? "ENOENT"
        : undefined;
    if (code !== undefined) {
      throw Object.assign(new Error(message, { cause: error }), { code });
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
