import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

export const projectFolder = fileURLToPath(new URL("../..", import.meta.url));
const program = fileURLToPath(new URL("../../bin/infer-batch.js", import.meta.url));
const modules = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

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
  /** Runs the modules that the bundle is made of: what `node` imports can then get at the same packages. */
  readonly unbundled?: boolean;
  /** Called with the process once it runs. */
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
  const child = spawn(
    process.execPath,
    [...(options.node ?? []), options.unbundled === true ? modules : program, ...args],
    {
      cwd: options.cwd ?? projectFolder,
      env: { ...process.env, NO_COLOR: "1", ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
      ...(options.uid === undefined ? {} : { uid: options.uid }),
    },
  );
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
    options.onStderr?.(stderr, child);
  });
  options.onStart?.(child);
  return await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => {
      resolve({ code, signal, stdout, stderr });
    });
  });
}
