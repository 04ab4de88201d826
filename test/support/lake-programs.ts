import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";

/** deltalake and pyiceberg. */
const { bin, ...found } = pythonTools("lakes", [
  "pyiceberg[sql-sqlite,pyarrow]==0.12.0",
  "deltalake==1.6.6",
  "pyarrow==26.0.1",
]);

/** Why they are not there. */
export const { missing, skipped } = found;

export const lakePython = join(bin, "python");
export const lakeScript = (name: string): string => join(projectFolder, "test/support/lakes", name);

/** A script of test/support/lakes that writes tables: it reads and answers lines. */
export interface LakeProgram extends AsyncDisposable {
  readonly child: ChildProcessWithoutNullStreams;
  /** The next line that it says. */
  line(): Promise<string>;
  /** Sends a line, and returns the next one that it says. */
  ask(line: string): Promise<string>;
}

export function startLakeProgram(
  script: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): LakeProgram {
  const child = spawn(lakePython, [lakeScript(script), ...args], { env });
  child.stdin.on("error", () => undefined); // it has ended: `line` says so
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  let said = "";
  child.stderr.on("data", (text: Buffer) => {
    said += String(text);
  });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const line = async (): Promise<string> => {
    const next = await lines.next();
    if (next.done === true) {
      throw new Error(`${script} has ended: ${said}`);
    }
    return next.value;
  };
  return {
    child,
    line,
    async ask(text) {
      child.stdin.write(`${text}\n`);
      return await line();
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
