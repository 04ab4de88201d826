import { readFile, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, parse, relative, resolve } from "node:path";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import type { Log } from "../scoring/context.js";
import type { Worker } from "../plan/share.js";
import { makeFolder, replaceDurably } from "../sink/parquet/local/durable.js";
import { nodeFileSystem } from "../sink/parquet/common/file-system.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { LoadedSpec } from "../spec/load.js";
import { isS3Uri } from "../spec/s3-uri.js";

/** Absolute paths. */
export interface ReportFiles {
  readonly html?: string | undefined;
  readonly metrics?: string | undefined;
}

/**
 * Where an attempt is told of; each of several workers has files of its own.
 * @throws JobError USAGE where that is among the predictions
 */
export async function placeReports(
  { spec, where }: Pick<LoadedSpec, "spec" | "where">,
  { folder, worker }: { readonly folder: string; readonly worker: Worker },
): Promise<ReportFiles> {
  const place = async (key: "html" | "metrics"): Promise<string | undefined> => {
    const given = spec.report[key];
    if (given === undefined) {
      return undefined;
    }
    const { dir, name, ext } = parse(resolve(folder, given));
    await refuseAmongPredictions(spec, { folder, path: dir, doing: `reading ${where(["report", key])}` });
    return join(dir, worker.count === 1 ? `${name}${ext}` : `${name}.worker-${worker.index}${ext}`);
  };
  return { html: await place("html"), metrics: await place("metrics") };
}

/** A file there would be taken for somebody else's by the next attempt. @throws JobError USAGE */
export async function refuseAmongPredictions(
  { output: { parquet } }: JobSpec,
  { folder, path, doing }: { readonly folder: string; readonly path: string; readonly doing: string },
): Promise<void> {
  if (parquet === undefined || isS3Uri(parquet.path)) {
    return;
  }
  const output = await realPath(resolve(folder, parquet.path));
  if (!relative(output, await realPath(path)).startsWith("..")) {
    throw new JobError("USAGE", `${doing}: it lies in the folder of the predictions`, {
      hint: "nothing but predictions may lie in output.parquet.path; keep reports in another folder",
    });
  }
}

/** Without links, as far as it is there. */
async function realPath(path: string): Promise<string> {
  const parent = dirname(path);
  // Not there, or not for this user to look at: opening the file tells.
  return await realpath(path).catch(async () =>
    parent === path ? path : join(await realPath(parent), basename(path)),
  );
}

/** The text of a report that is there; empty where there is none. Nothing else is opened: a pipe would hold us up. */
export async function readReport(path: string): Promise<string> {
  // One that cannot be read is written anew, which says what is wrong.
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? await readFile(path, "utf8").catch(() => "") : "";
}

/** All of it or nothing, for whoever reads it just then. Returns what failed, if anything did. */
export async function writeReport(path: string, text: string): Promise<string | undefined> {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    await makeFolder(nodeFileSystem, dirname(path));
    await replaceDurably(nodeFileSystem, { temporary, final: path, text, check: () => Promise.resolve() });
    return undefined;
  } catch (error) {
    return errnoOf(error) ?? messageOf(error);
  }
}

/** Where an attempt that is under way keeps its metrics up to date. */
const everyMs = 15_000;

/** Writes a text now, now and then, and at the end. What fails is told once, and tried again. */
export function keepWriting(
  log: Log,
  { key, path, text }: { readonly key: string; readonly path: string; readonly text: () => string },
): { readonly end: () => Promise<void> } {
  let told = false;
  let writing = Promise.resolve();
  const writeAfter = async (before: Promise<void>): Promise<void> => {
    await before;
    const failed = await writeReport(path, text());
    if (failed !== undefined && !told) {
      told = true;
      log.warn(`writing ${key} ${path}: ${failed}`);
    }
  };
  const write = (): void => {
    writing = writeAfter(writing);
  };
  write();
  const timer = setInterval(write, everyMs).unref();
  return {
    async end() {
      clearInterval(timer);
      write();
      await writing;
    },
  };
}
