import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect } from "vitest";
import { type CliOptions, type CliResult, projectFolder, runCli } from "./cli.js";
import { expectFinished } from "./crash.js";
import { goldenRows } from "./golden.js";
import { scratchFolder, writeSpec } from "./job.js";
import type { Expected } from "./output.js";
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
