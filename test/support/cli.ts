import { spawn } from "node:child_process";
import { isAbsolute } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { Io } from "#src/cli/io.js";
import { runProgram } from "#src/cli/program.js";
import { shareCode } from "./code-cache.js";
import { whileRunning } from "./running-commands.js";

export const projectFolder = fileURLToPath(new URL("../..", import.meta.url));
const program = fileURLToPath(new URL("../../bin/infer-batch.js", import.meta.url));

export interface CliResult {
  /** null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly cwd?: string;
  /** On top of this process's own; undefined takes a variable away. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The user to run as; only root may ask for one. */
  readonly uid?: number;
  /** Options of node itself, such as `--import=…`. */
  readonly node?: readonly string[];
  /** Keeps compiled code in a cache of its own, `XDG_CACHE_HOME` of `env`. */
  readonly ownCode?: boolean;
  /** The program, where it is installed in another place. */
  readonly program?: string;
  readonly onStart?: (child: RunningCli) => void;
  /** Called with all of stderr so far, whenever there is more of it. */
  readonly onStderr?: (seen: string, child: RunningCli) => void;
}

export interface RunningCli {
  kill(signal: NodeJS.Signals): boolean;
  readonly pid?: number | undefined;
}

/** Runs the built command in a process of its own. */
export async function runCli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  if (options.ownCode !== true && options.uid === undefined) {
    shareCodeOf(options.env);
  }
  const child = spawn(process.execPath, [...(options.node ?? []), options.program ?? program, ...args], {
    cwd: options.cwd ?? projectFolder,
    env: { ...process.env, NO_COLOR: "1", ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
    ...(options.uid === undefined ? {} : { uid: options.uid }),
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
    options.onStderr?.(stderr, child);
  });
  const command = { what: `infer-batch ${args.join(" ")}`, pid: child.pid ?? 0, output: () => stdout + stderr };
  return await whileRunning(command, () => {
    options.onStart?.(child);
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, signal) => {
        resolve({ code, signal, stdout, stderr });
      });
    });
  });
}

function shareCodeOf({ XDG_CACHE_HOME: cache }: NonNullable<CliOptions["env"]> = {}): void {
  if (cache !== undefined && isAbsolute(cache)) {
    shareCode(cache);
  }
}

interface HereOptions extends Pick<CliOptions, "cwd" | "env"> {
  readonly onStderr?: (seen: string) => void;
  /** The width of the terminal that stdout is; undefined: it is none. */
  readonly columns?: number;
}

/**
 * Carries out a command line in this process: the program that the built command hands its arguments to, with all that
 * it says. A third of what a process takes. For what a process has of its own (signals, a user, options of node,
 * threads that write to stderr by themselves), and for several at once on one target, there is `runCli`.
 */
export async function runHere(
  args: readonly string[],
  { env = {}, cwd, onStderr, columns }: HereOptions = {},
): Promise<CliResult> {
  shareCodeOf(env);
  using _ = changeProcess(env, cwd);
  const said = { stdout: "", stderr: "" };
  const into = (name: "stdout" | "stderr"): { write(text: string): void } => ({
    write(text) {
      said[name] += text;
      if (name === "stderr") {
        onStderr?.(said.stderr);
      }
    },
  });
  const terminal = columns !== undefined && { isTTY: true, columns, fd: 1 };
  const stdout = { ...terminal, ...into("stdout") } as Io["stdout"];
  const io: Io = { stdout, stderr: into("stderr") };
  const command = {
    what: `infer-batch ${args.join(" ")}, in this process,`,
    pid: process.pid,
    output: () => said.stdout + said.stderr,
  };
  return await whileRunning(command, async () => {
    await runProgram(args, io);
    return { code: Number(io.exitCode ?? 0), signal: null, ...said };
  });
}

export interface HereOrApart extends CliOptions {
  /** For several at once on one target. */
  readonly ownProcess?: boolean;
}

/** In this process, unless something is asked for that only one of its own has. */
export async function runCommand(
  args: readonly string[],
  { ownProcess = false, env = {}, cwd, ...options }: HereOrApart = {},
): Promise<CliResult> {
  const here = !ownProcess && Object.values(options).every((value) => value === undefined);
  const where = cwd === undefined ? { env } : { env, cwd };
  return here ? await runHere(args, where) : await runCli(args, { ...options, ...where });
}

/** Expects an exit code and all that stderr must say, as parts or patterns; shows what was said where they differ. */
export async function expectEnd<R extends Pick<CliResult, "code" | "stderr">>(
  command: R | Promise<R>,
  code: number | null,
  ...says: readonly (string | RegExp)[]
): Promise<R> {
  const result = await command;
  expect(result.code, result.stderr).toBe(code);
  for (const text of says) {
    expect(result.stderr).toMatch(text);
  }
  return result;
}

/** The same of a run, and what its summary must have. */
export async function expectReport<R extends CliResult & { readonly report: object }>(
  command: Promise<R>,
  code: number,
  report: object,
): Promise<R> {
  const result = await expectEnd(command, code);
  expect(result.report).toMatchObject(report);
  return result;
}

let runningHere = 0;
let isChanged = false;

/**
 * Gives this process other variables and another working folder, until it is disposed.
 * @throws where a command that runs beside this one would see the changes, or this one would see its own
 */
function changeProcess(changes: NonNullable<CliOptions["env"]>, cwd: string | undefined): Disposable {
  const names = Object.keys(changes);
  const changesAny = names.length > 0 || cwd !== undefined;
  if (isChanged || (changesAny && runningHere > 0)) {
    throw new Error(
      "two commands at once, with variables or a folder of their own: give each its own process (runCli)",
    );
  }
  runningHere += 1;
  isChanged = changesAny;
  const variables = names.map((name) => [name, process.env[name]] as const);
  const folder = process.cwd();
  setEnv(Object.entries(changes));
  if (cwd !== undefined) {
    process.chdir(cwd);
  }
  return {
    [Symbol.dispose]() {
      process.chdir(folder);
      setEnv(variables);
      runningHere -= 1;
      isChanged = false;
    },
  };
}

function setEnv(values: Iterable<readonly [string, string | undefined]>): void {
  for (const [name, value] of values) {
    if (value === undefined) {
      delete process.env[name];
    } else {
      process.env[name] = value;
    }
  }
}
