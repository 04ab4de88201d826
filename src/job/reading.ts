import { readFileSync, statSync } from "node:fs";
import { open, readdir } from "node:fs/promises";
import { dirname, join, parse, resolve } from "node:path";
import type { DiffSide } from "../run/two-sets.js";
import type { SpecContext } from "./jobfile/fill-document.js";
import { type LoadedSpec, loadSpec } from "./jobfile/load.js";
import { secretFile } from "./jobfile/secrets.js";
import { diskErrors } from "../stores/disk.js";
import { didYouMean } from "../base/suggest.js";
import { errnoOf, type ErrorCode, JobError, messageOf } from "../base/errors.js";

/** Errors of a file name that a user gave; names that the sink makes do not meet them. */
const ofGivenNames: Readonly<Record<string, { code: ErrorCode; found: string }>> = {
  ENOENT: { code: "FILE_MISSING", found: "there is no such file or folder" },
  EISDIR: { code: "FILE_MISSING", found: "it is a folder" },
  ENOTDIR: { code: "FILE_MISSING", found: "a folder above it is a file" },
  ENAMETOOLONG: { code: "FILE_MISSING", found: "the name is too long" },
  ELOOP: { code: "FILE_MISSING", found: "its links lead in a circle" },
};

/**
 * Errors that another name would not avoid (a full disk, too many open files) are temporary. @returns `error` itself if
 * it is no system error
 */
export function fileError(doing: string, error: unknown, hint: string): unknown {
  const errno = errnoOf(error);
  if (error instanceof JobError || errno === undefined) {
    return error;
  }
  const { code, found, remedy } = explained(errno, hint, "run the same command again");
  return new JobError(code, `${doing}: ${found}`, { hint: remedy, cause: error });
}

/** Says in one line why a file that a user named could not be written. @param hint what to do if the name is wrong */
export function failureText(error: unknown, hint: string): string {
  const errno = errnoOf(error);
  if (error instanceof JobError || errno === undefined) {
    return messageOf(error);
  }
  const { found, remedy } = explained(errno, hint, hint);
  return `${found}; ${remedy}`;
}

function explained(
  errno: string,
  hint: string,
  unknown: string,
): { readonly code: ErrorCode; readonly found: string; readonly remedy: string } {
  const known = ofGivenNames[errno] ?? diskErrors[errno];
  if (known === undefined) {
    return { code: "DISK", found: errno, remedy: unknown };
  }
  const { code, found } = known;
  const ofDisk = code === "DISK" ? diskErrors[errno]?.hint : undefined;
  return { code, found: `${found} (${errno})`, remedy: ofDisk ?? hint };
}

/** At most the first `limitBytes`, also of a file or pipe that never ends, as `/dev/zero`. */
async function readStart(path: string, limitBytes: number): Promise<string> {
  await using file = await open(path);
  const bytes = Buffer.alloc(limitBytes);
  let length = 0;
  while (length < limitBytes) {
    const { bytesRead } = await file.read(bytes, length, limitBytes - length, null); // a pipe has no positions
    if (bytesRead === 0) {
      break;
    }
    length += bytesRead;
  }
  return bytes.toString("utf8", 0, length);
}

/** @param key as messages name it @throws JobError FILE_MISSING, PERMISSION, DISK; SPEC_INVALID if it is too large */
export async function readGivenText(
  path: string,
  { key, limitBytes }: { key: string; limitBytes: number },
): Promise<string> {
  const doing = `reading ${key}: ${path}`;
  const hint = "name a file that this user can read; paths are relative to the spec's folder";
  const text = await readStart(path, limitBytes + 1).catch((error: unknown) => {
    throw fileError(doing, error, hint);
  });
  if (Buffer.byteLength(text) > limitBytes) {
    throw new JobError("SPEC_INVALID", `${doing}: it has more than ${limitBytes / 1024 / 1024} MiB`, { hint });
  }
  return text;
}

/** More than all authorities of a system. */
const pemLimitBytes = 4 * 1024 * 1024;

/** Reads certificates or a key in PEM. `folder`: the spec's. @throws JobError as `readGivenText` */
export function readPem(path: string, { folder, key }: { folder: string; key: string }): Promise<string> {
  return readGivenText(resolve(folder, path), { key, limitBytes: pemLimitBytes });
}

/** Longer than any password, token or URL. */
const secretLimitBytes = 64 * 1024;

/**
 * The value, or the text of the file of `${file:PATH}` without the last newline. No message quotes it. `folder`: the
 * spec's. @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID, DISK
 */
export async function readSecret(
  value: string,
  { folder, key }: { readonly folder: string; readonly key: string },
): Promise<string> {
  const path = secretFile(value);
  if (path === undefined) {
    return value;
  }
  const doing = `reading ${key}: ${path}`;
  const hint = "${file:PATH} names a file that this user can read; paths are relative to the spec's folder";
  const text = await readStart(resolve(folder, path), secretLimitBytes + 1).catch((error: unknown) => {
    throw fileError(doing, error, hint);
  });
  if (Buffer.byteLength(text) > secretLimitBytes) {
    throw new JobError("SPEC_INVALID", `${doing}: it has more than ${secretLimitBytes / 1024} KiB`, { hint });
  }
  const secret = text.replace(/\r?\n$/, "");
  if (secret === "" || secret.includes("\0")) {
    const found = secret === "" ? "it is empty" : "it is no text";
    throw new JobError("SPEC_INVALID", `${doing}: ${found}`, { hint: "write the secret into it, and nothing else" });
  }
  return secret;
}

/** As `readSecret`, for a header. @throws JobError also SPEC_INVALID for a secret that no header can carry */
export async function readHeaderValue(...[value, { folder, key }]: Parameters<typeof readSecret>): Promise<string> {
  const secret = await readSecret(value, { folder, key });
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(secret)) {
    throw new JobError("SPEC_INVALID", `reading ${key}: it is empty, or has characters that no HTTP header can carry`, {
      hint: "it is made of letters, digits and punctuation, without line ends, and without blanks at its ends",
    });
  }
  return secret;
}

export interface JobOptions {
  /** `name=value` each. */
  readonly param: readonly string[];
}

const specLimitBytes = 1024 * 1024;

/** Ids of runs, which some people give in place of a spec. */
const runIdForm = /^[\w-]+-[0-9a-f]{12}(?:-r\d+)?$/;

/** @param how `pipe`: rows go through a pipe. `standIns`: params without a value get a placeholder, to find any run */
export async function readSpec(
  path: string,
  options: JobOptions,
  how: Pick<SpecContext, "pipe" | "standIns"> = {},
): Promise<LoadedSpec> {
  return (await readSpecOnce(path, options, how))({});
}

/** Checks a spec with several sets of params, all at the same moment. */
export type LoadWith = (params: Readonly<Record<string, string>>) => LoadedSpec;

/** Reads a spec once, for runs with different params. `param` holds for all of them. */
export async function readSpecOnce(
  path: string,
  { param }: JobOptions,
  how: Pick<SpecContext, "pipe" | "standIns"> = {},
): Promise<LoadWith> {
  const text = await readText(path);
  const given = parseParams(param);
  const context = { ...how, file: path, env: process.env, nowMs: Date.now(), readFile: readerRelativeTo(path) };
  return (params) => loadSpec(text, { ...context, params: { ...given, ...params } });
}

function readerRelativeTo(specPath: string): (path: string, place: string) => string {
  return (path, place) => {
    const doing = `reading ${place}: ${path}`;
    try {
      const file = resolve(dirname(specPath), path);
      if (statSync(file).size > specLimitBytes) {
        throw new JobError("SPEC_INVALID", `${doing}: it has more than ${specLimitBytes} bytes`, {
          hint: "a prompt is a few pages of text; is this the right file?",
        });
      }
      return readFileSync(file, "utf8");
    } catch (cause) {
      throw fileError(doing, cause, "a text file that this user can read; paths are relative to the spec's folder");
    }
  };
}

async function readText(path: string): Promise<string> {
  try {
    return requireText(path, await readStart(path, specLimitBytes));
  } catch (cause) {
    const hint = runIdForm.test(path)
      ? `that is a run id; give the job spec first, a YAML file. status, stats, rejects, diff, approve and discard then take the id: infer-batch status job.yaml --run ${path}`
      : `the first argument is the job spec, a YAML file this user can read${await likeNamed(path)}`;
    throw fileError(`reading ${path}`, cause, hint);
  }
}

/** Names the spec in the folder of a file that is not there that has its name with another ending, or almost its name. */
async function likeNamed(path: string): Promise<string> {
  const { dir, base, name } = parse(path);
  const names = await readdir(dir === "" ? "." : dir).catch(() => []);
  const specs = names.filter((each) => /\.ya?ml$/.test(each));
  const sameStem = specs.find((each) => parse(each).name === name);
  return specs.includes(base) ? "" : didYouMean(sameStem ?? base, specs);
}

/** A model or a file of rows, which some people give in place of a spec. */
function requireText(path: string, text: string): string {
  const starts = { PAR1: "a Parquet file", ARROW1: "an Arrow file", "\b": "an ONNX model" }; // "\b": the number of its first field
  const [, what] = Object.entries(starts).find(([start]) => text.startsWith(start)) ?? [];
  if (what === undefined) {
    return text;
  }
  throw new JobError("SPEC_INVALID", `reading ${path}: it is ${what}, not a job spec`, {
    hint: `the first argument is the job spec, a YAML file, which names ${what === starts["\b"] ? "the model" : "its input"}; infer-batch init writes one`,
  });
}

function parseParams(given: readonly string[]): Record<string, string> {
  const params = new Map<string, string>();
  for (const text of given) {
    const at = text.indexOf("=");
    if (at <= 0) {
      throw new JobError("USAGE", `reading --param ${text}: expected name=value`, {
        hint: "such as --param ds=2026-01-31",
      });
    }
    params.set(text.slice(0, at), text.slice(at + 1));
  }
  return Object.fromEntries(params);
}

/** Finds the Parquet files directly in a folder. @throws JobError FILE_MISSING, USAGE where there is none */
export async function parquetFolder(given: string): Promise<DiffSide> {
  const folder = resolve(given);
  const names = await readdir(folder).catch((cause: unknown) => {
    throw fileError(`reading ${given}`, cause, "name a folder with Parquet files that this user can read");
  });
  // Those of a second model end in .compared, so that no reader takes them for published ones.
  const paths = names.filter((name) => /\.(parquet|compared)$/.test(name)).map((name) => join(folder, name));
  if (paths.length === 0) {
    throw new JobError("USAGE", `reading ${given}: no file in it ends in .parquet`, {
      hint: "name the folder of one run; folders below it are not looked into",
    });
  }
  return { name: given, rows: { folder, groups: oneGroup(paths) } };
}

export async function* oneGroup(paths: readonly string[]): AsyncGenerator<readonly string[]> {
  yield await Promise.resolve(paths);
}
