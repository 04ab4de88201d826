import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect } from "vitest";
import { type CliOptions, type CliResult, expectEnd, projectFolder, runCli } from "./cli.js";
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

/** The durable calls of an undisturbed run, in order. `copies`: a folder for the copies that `leftAt` takes. */
export async function traceOf(copies?: string): Promise<string[]> {
  await using scratch = await scratchFolder();
  const { spec, out, expected } = await watchedJob(scratch.path);
  const calls = await callsOf(scratch.path, out, (env) => runWatched(spec, env), { copies });
  await expectFinished(out, expected);
  return calls;
}

/** The durable calls of a command that `run` starts, in order; `folder` is for their list. */
export async function callsOf(
  folder: string,
  out: string,
  run: (env: Readonly<Record<string, string>>) => Promise<CliResult>,
  { copies, code: due = 0 }: { readonly copies?: string | undefined; readonly code?: number } = {},
): Promise<string[]> {
  const trace = join(folder, "trace");
  const copying = copies === undefined || torture ? {} : { CRASH_COPIES: copies };
  if (copies !== undefined) {
    await mkdir(copies);
  }
  await expectEnd(run({ CRASH_ROOT: out, CRASH_TRACE: trace, ...copying }), due);
  return (await readFile(trace, "utf8")).trimEnd().split("\n");
}

/** A moment that a process is killed at, or of which a process that was not killed has left a copy. */
export interface Kill {
  readonly moment: string;
  readonly copy: string | undefined;
}

/** In the short form, one moment in so many, and the last, has a process that is killed. */
const momentsOfKill = 10;

/**
 * What is left at each moment: the long form kills a process at each. The short form kills one at some, and takes the
 * copies that `callsOf` made for the others. test/crash/every-call.test.ts shows that a killed process leaves the same.
 */
export function killsOrCopies(moments: readonly string[], copies: string): Kill[] {
  return moments.map((moment, index) => {
    const kills = torture || index % momentsOfKill === 0 || moment.startsWith("after ");
    return { moment, copy: kills ? undefined : join(copies, encodeURIComponent(moment)) };
  });
}

/** Has `out` as a process leaves it that is killed at the moment. Returns what the process said. */
export async function leftAt(
  { moment, copy }: Kill,
  out: string,
  run: (env: Readonly<Record<string, string>>) => Promise<CliResult>,
): Promise<string> {
  if (copy === undefined) {
    const killed = await run({ CRASH_ROOT: out, CRASH_AT: moment });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    return killed.stderr;
  }
  expect(existsSync(copy), `a copy of what is left ${moment}`).toBe(true);
  await rm(out, { recursive: true, force: true });
  if (existsSync(join(copy, "left"))) {
    execFileSync("cp", ["-a", join(copy, "left"), out], { stdio: "pipe" });
  }
  return "";
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
