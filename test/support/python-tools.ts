import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, cacheFolder } from "./build-once.mjs";
import { torture } from "./torture.js";

export interface PythonTools {
  /** Where they are; missing where there is no Python 3 with pip that can install them. */
  readonly bin: string;
  readonly missing: string | undefined;
  /** For the name of tests that are skipped without them. */
  readonly skipped: string;
}

/** Tools of tests that only the long form runs. */
export function pythonToolsOfTorture(...args: Parameters<typeof pythonTools>): PythonTools {
  const missing = "long form: INFER_BATCH_TORTURE=1";
  return torture ? pythonTools(...args) : { bin: "", missing, skipped: ` (skipped: ${missing})` };
}

/** Packages in an environment of their own, installed once into a cache outside of the checkout. */
export function pythonTools(name: string, packages: readonly string[], python = "python3"): PythonTools {
  const folder = cacheFolder(`${name}-${packages.join("-").replaceAll(/[^\w.-]/g, "_")}`);
  const bin = join(folder, "venv", "bin");
  const missing = buildOnce(join(folder, "complete"), () => {
    console.warn(`installing ${packages.join(", ")} into ${folder}: once`);
    const steps: (readonly [string, readonly string[]])[] = [
      [python, ["-m", "venv", "--clear", join(folder, "venv")]],
      // uv installs Airflow in a tenth of pip's time.
      [join(bin, "pip"), ["install", "--quiet", "--disable-pip-version-check", "uv"]],
      [join(bin, "uv"), ["pip", "install", "--quiet", "--python", join(bin, "python"), ...packages]],
    ];
    for (const [program, args] of steps) {
      const { status, stderr, error } = spawnSync(program, args, { encoding: "utf8" });
      if (status !== 0) {
        return `${program} ${args.join(" ")}: ${error?.message ?? stderr.slice(-300)}`;
      }
    }
    writeFileSync(join(folder, "complete"), "");
    return undefined;
  });
  if (missing === undefined) {
    compileOnce(folder);
  }
  return { bin, missing, skipped: missing === undefined ? "" : ` (skipped: ${missing.split("\n")[0]})` };
}

/**
 * Compiles what is installed. Python does so itself, but not where PYTHONDONTWRITEBYTECODE is set, as in many
 * containers: there each process compiles all that it imports, which is most of what a short one does.
 */
function compileOnce(folder: string): void {
  const venv = join(folder, "venv");
  buildOnce(join(folder, "compiled"), () => {
    // Packages have templates in other dialects, which do not compile: a file that fails is compiled when it is imported.
    spawnSync(join(venv, "bin", "python"), ["-m", "compileall", "-q", "-j", "0", join(venv, "lib")]);
    writeFileSync(join(folder, "compiled"), "");
  });
}
