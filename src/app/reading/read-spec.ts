import { readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { SpecContext } from "../../spec/fill-document.js";
import { type LoadedSpec, loadSpec } from "../../spec/load.js";
import { JobError } from "../../util/errors.js";
import { fileError, readStart } from "./given-files.js";

export interface JobOptions {
  /** `name=value` each. */
  readonly param: readonly string[];
}

/** The longest spec that is accepted has fewer bytes in UTF-8. */
const specLimitBytes = 1024 * 1024;

/** Ids of runs, which some people give in place of a spec. */
const runIdForm = /^[\w-]+-[0-9a-f]{12}(?:-r\d+)?$/;

/**
 * Reads and checks a spec.
 * @param how `pipe`: its rows come and go through a pipe. `standIns`: params without a value get a placeholder, so that runs with any value are found
 */
export async function readSpec(
  path: string,
  { param }: JobOptions,
  how: Pick<SpecContext, "pipe" | "standIns"> = {},
): Promise<LoadedSpec> {
  const text = await readText(path);
  const given = { file: path, params: parseParams(param), env: process.env, nowMs: Date.now(), ...how };
  return loadSpec(text, { ...given, readFile: readerRelativeTo(path) });
}

/** Checks a spec with several sets of params, all at the same moment. */
export type LoadWith = (params: Readonly<Record<string, string>>) => LoadedSpec;

/** Reads a spec once, for runs with different params. `param` holds for all of them. */
export async function readSpecOnce(path: string, { param }: JobOptions): Promise<LoadWith> {
  const text = await readText(path);
  const given = parseParams(param);
  const nowMs = Date.now();
  const readFile = readerRelativeTo(path);
  return (params) => loadSpec(text, { file: path, params: { ...given, ...params }, env: process.env, nowMs, readFile });
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
      : "the first argument is the job spec, a YAML file this user can read";
    throw fileError(`reading ${path}`, cause, hint);
  }
}

/** Refuses a file of rows, which some people give in place of a spec. @throws JobError SPEC_INVALID */
function requireText(path: string, text: string): string {
  const [, kind] = /^(PAR1|ARROW1)/.exec(text) ?? [];
  if (kind === undefined) {
    return text;
  }
  const found = kind === "PAR1" ? "a Parquet file" : "an Arrow file";
  throw new JobError("SPEC_INVALID", `reading ${path}: it is ${found}, not a job spec`, {
    hint: "the first argument is the job spec, a YAML file, which names its input; infer-batch init writes one",
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
