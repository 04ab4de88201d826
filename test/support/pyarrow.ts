import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { pythonToolsOfTorture } from "./python-tools.js";

/** Without `PYTHON`, the long form installs the writers for itself. */
const installed =
  process.env["PYTHON"] === undefined
    ? pythonToolsOfTorture("parquet-writers", ["pyarrow==26.0.1", "polars==2.1.0", "fastparquet==2026.9.0"])
    : undefined;

/** `PYTHON` names one that has pyarrow where the first on the path does not. */
const python =
  process.env["PYTHON"] ?? (installed?.missing === undefined ? join(installed?.bin ?? "", "python") : "python3");

const has = (modules: string): boolean => spawnSync(python, ["-c", `import ${modules}`]).status === 0;

/** Whether a Python with pyarrow is at hand: an independent writer and reader of Parquet. */
export const hasPyarrow = has("pyarrow.parquet");

/** Whether it has other writers, too. */
export const hasPythonWriters = hasPyarrow && has("polars, fastparquet, pandas");

/** Runs a script; returns what it printed. @throws Error with its traceback */
export function runPython(script: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(python, ["-", ...args], { input: script, encoding: "utf8" });
  if (status !== 0) {
    throw new Error(stderr);
  }
  return stdout;
}
