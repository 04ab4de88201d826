import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect } from "vitest";
import { type CliOptions, type CliResult, projectFolder, runCli } from "./cli.js";
import { expectFinished } from "./crash.js";
import { goldenRows } from "./golden.js";
import { scratchFolder, writeSpec } from "./job.js";
import type { Expected } from "./output.js";
import { torture } from "./torture.js";
import { fixtureNamed } from "./world.js";

/** The watched job: 442 rows of two shards in 6 spans, one of which lies in both. */
export const commitRows = 80;
export const spans = 6;

const preload = pathToFileURL(join(projectFolder, "test/crash/preload.mjs")).href;

export async function watchedJob(folder: string): Promise<{ spec: string; out: string; expected: Expected }> {
  const fixture = fixtureNamed("diabetes-mlp");
  const spec = await writeSpec(folder, fixture, { commit_rows: commitRows });
  return { spec, out: join(folder, "out"), expected: { golden: await goldenRows(fixture), commitRows } };
}

/** Runs a command other than `run` behind test/crash/preload.mjs. */
export async function watchCommand(args: readonly string[], env: Readonly<Record<string, string>>): Promise<CliResult> {
  return await runCli(args, { node: [`--import=${preload}`], env });
}

/** Runs the built command behind test/crash/preload.mjs, which says what `env` may hold. */
export async function runWatched(
  spec: string,
  env: Readonly<Record<string, string>>,
  { args = [], ...told }: Pick<CliOptions, "onStart" | "onStderr"> & { readonly args?: readonly string[] } = {},
): Promise<CliResult> {
  const options = { node: [`--import=${preload}`], env, ...told };
  return await runCli(["run", spec, "--no-progress", "--log-level", "debug", ...args], options);
}

/** The durable calls of an undisturbed run, in order. */
export async function traceOf(): Promise<string[]> {
  await using scratch = await scratchFolder();
  const { spec, out, expected } = await watchedJob(scratch.path);
  const trace = join(scratch.path, "trace");
  const { code, stderr } = await runWatched(spec, { CRASH_ROOT: out, CRASH_TRACE: trace });
  expect(code, stderr).toBe(0);
  await expectFinished(out, expected);
  return (await readFile(trace, "utf8")).trimEnd().split("\n");
}

/**
 * Moments of calls to be killed at, as CRASH_AT takes them. After a call is before the next one, but for what others do
 * meanwhile: the short form leaves that out, and flushes, which make no difference to what a killed process leaves; nor
 * does it matter whether a temporary text is missing, empty or torn in the middle.
 */
export function killsAt(calls: readonly string[]): string[] {
  const chosen = calls.filter((call) => torture || !call.startsWith("sync "));
  const moments: string[] = [];
  for (const [index, call] of chosen.entries()) {
    if (torture || !/^(?:create|write) control\/tmp\//.test(call)) {
      moments.push(`before ${call}`);
    }
    if (call.startsWith("write ")) {
      moments.push(`torn ${call}`);
    }
    if (torture || index === chosen.length - 1) {
      moments.push(`after ${call}`);
    }
  }
  return moments;
}
