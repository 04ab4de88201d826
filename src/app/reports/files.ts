import { readdir, readFile, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { JobError } from "../../util/errors.js";
import { failureText } from "../reading/given-files.js";
import type { Log } from "../../scoring/context.js";
import type { Worker } from "../../plan/spans.js";
import { makeFolder, nodeFileSystem, replaceFile } from "../../stores/disk.js";
import type { JobSpec } from "../../spec/job-spec.js";
import type { LoadedSpec } from "../../spec/load.js";
import { isObjectUri } from "../../spec/object-uri.js";
import { isWorkerFile, workerFile } from "../../report/worker-file.js";

/** Absolute paths. */
export interface ReportFiles {
  readonly html?: string | undefined;
  readonly metrics?: string | undefined;
}

/**
 * Returns the files that an attempt is reported in; each of several workers has its own.
 * @throws JobError USAGE if one is in the folder of the predictions
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
    const path = resolve(folder, given);
    await refuseAmongPredictions(spec, { folder, path: dirname(path), doing: `reading ${where(["report", key])}` });
    return workerFile(path, worker);
  };
  return { html: await place("html"), metrics: await place("metrics") };
}

/** Refuses a file in the output folder: the next attempt would take it for a foreign file. @throws JobError USAGE */
export async function refuseAmongPredictions(
  { output: { parquet } }: JobSpec,
  { folder, path, doing }: { readonly folder: string; readonly path: string; readonly doing: string },
): Promise<void> {
  if (parquet === undefined || isObjectUri(parquet.path)) {
    return;
  }
  const output = await realPath(resolve(folder, parquet.path));
  if (!relative(output, await realPath(path)).startsWith("..")) {
    throw new JobError("USAGE", `${doing}: it is in the folder of the predictions`, {
      hint: "only predictions may be in output.parquet.path; keep reports in another folder",
    });
  }
}

/** Resolves the links of the part of a path that exists. */
async function realPath(path: string): Promise<string> {
  const parent = dirname(path);
  // It does not exist, or this user may not read it: opening the file reports which.
  return await realpath(path).catch(async () =>
    parent === path ? path : join(await realPath(parent), basename(path)),
  );
}

/** Returns the files on this machine in which the worker of a spec, or each of several, has reported. */
export async function reportsOfWorkers(path: string): Promise<string[]> {
  const folder = dirname(path);
  const names = await readdir(folder).catch(() => []);
  return names.map((name) => join(folder, name)).filter((file) => isWorkerFile(file, path));
}

/** Reads an earlier report; empty if there is none. Opens plain files only, since a pipe would block. */
export async function readReport(path: string): Promise<string> {
  // One that cannot be read is written anew, which says what is wrong.
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? await readFile(path, "utf8").catch(() => "") : "";
}

/**
 * Replaces a report at once, so that readers see all of it or the old one. Returns what failed; undefined if nothing.
 */
export async function writeReport(path: string, text: string): Promise<string | undefined> {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    await makeFolder(nodeFileSystem, dirname(path));
    await replaceFile(nodeFileSystem, { path, temporary, text });
    return undefined;
  } catch (error) {
    return failureText(error, "let this user write there, or name another file");
  }
}

/** A file that is kept up to date during an attempt. */
const everyMs = 15_000;

/** Writes a text at once, at intervals and at the end. A failure is logged once, and writing is retried. */
export function keepWriting(
  log: Log,
  { key, path, text }: { readonly key: string; readonly path: string; readonly text: () => string },
): { readonly end: () => Promise<void> } {
  let hasWarned = false;
  let writing = Promise.resolve();
  const writeAfter = async (before: Promise<void>): Promise<void> => {
    await before;
    const failed = await writeReport(path, text());
    if (failed !== undefined && !hasWarned) {
      hasWarned = true;
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
