import { spawnSync } from "node:child_process";

/** `PYTHON` names one that has pyarrow where the first on the path does not. */
const python = process.env["PYTHON"] ?? "python3";

/** Whether a Python with pyarrow is at hand: an independent writer and reader of Parquet. */
export const hasPyarrow = spawnSync(python, ["-c", "import pyarrow.parquet"]).status === 0;

/** Runs a script; returns what it printed. @throws Error with its traceback */
export function runPython(script: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(python, ["-", ...args], { input: script, encoding: "utf8" });
  if (status !== 0) {
    throw new Error(stderr);
  }
  return stdout;
}
