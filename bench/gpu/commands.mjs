// The commands that bench/gpu runs, and what they run with.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { writeSpec } from "./tables.mjs";

export const program = fileURLToPath(new URL("../../bin/infer-batch.js", import.meta.url));
/** A driver that hangs must not hold up the parts that follow. */
export const longestMs = 3_600_000;

/**
 * Runs infer-batch, or another program.
 * @param {readonly string[]} args
 * @param {{ env?: Readonly<Record<string, string>>, file?: readonly string[] }} [options] file: the program, and the
 * arguments before the others
 * @returns {{ code: number | string, found: any, stdout: string, said: string }} code: the exit code, or what ended it;
 * found: the last line of stdout if it is JSON; said: stderr
 */
export function command(args, { env, file: [file, ...first] = [process.execPath, program] } = {}) {
  const options = { env: { ...process.env, ...env }, maxBuffer: 2 ** 28, timeout: longestMs, encoding: "utf8" };
  const { status, signal, error, stdout, stderr } = spawnSync(file, [...first, ...args], options);
  const ended = status ?? signal ?? error?.code ?? "none";
  return { code: ended, found: lastJson(stdout ?? ""), stdout: stdout ?? "", said: stderr ?? "" };
}

/** @param {string} stdout */
export function lastJson(stdout) {
  const line = stdout.trim().split("\n").at(-1) ?? "";
  return line.startsWith("{") ? JSON.parse(line) : undefined;
}

/** The last lines that a command said, for a person who reads why it failed. */
export function lastLines(said) {
  return said.trim().split("\n").slice(-5).join("\n");
}

/** Says what failed. The parts that follow are measured all the same, and the script ends with 1. */
export function fail(text) {
  console.error(`    ${text}`);
  process.exitCode = 1;
}

/**
 * Runs a job on a provider.
 * @param {import("./tables.mjs").GpuJob} job
 * @param {{ provider: string, env: object, folder: string, output?: string, engine?: object, commitRows?: number,
 * files?: string }} options output: a name in `folder`; files: of the input's
 */
export async function score(job, { provider, env, folder, output = "out", engine = {}, commitRows, files }) {
  const path = join(folder, "job.yaml");
  const into = join(folder, output);
  const options = { path, output: into, engine: { providers: [provider], ...engine }, commitRows, files };
  const spec = await writeSpec(job, options);
  await rm(into, { recursive: true, force: true });
  const ran = command(["run", spec, "--json", "--no-progress"], { env });
  if (ran.code !== 0) {
    fail(`exit code ${ran.code}: ${lastLines(ran.said)}`);
  }
  return ran;
}

/**
 * Returns the variables that put CUDA's folder in front of the loader's path, as docs/gpu.md says; fills the folder first
 * as it says, if it has no libraries.
 * @param {string | undefined} folder
 * @returns {Record<string, string>}
 */
export function cudaEnv(folder) {
  if (folder === undefined) {
    return {};
  }
  const page = readFileSync(fileURLToPath(new URL("../../docs/gpu.md", import.meta.url)), "utf8");
  const [, lines] = /^### Install CUDA\n+```sh\n([^]*?)^```/m.exec(page);
  const [, install, copy, path] = lines.trim().split("\n");
  const isThere = existsSync(join(resolve(folder), "onnxruntime/capi/libonnxruntime.so.1"));
  const script = [...(isThere ? [] : [install, copy]), path, "echo $LD_LIBRARY_PATH"].join("\n");
  if (!isThere) {
    console.error(`installing CUDA into ${folder}`);
  }
  const shell = `cd "$0"; CUDA="$1"; ${script}`;
  const args = ["-ec", shell, fileURLToPath(new URL("../..", import.meta.url)), resolve(folder)];
  const { code, stdout, said } = command(args, { file: ["sh"] });
  if (code !== 0) {
    throw new Error(`installing CUDA into ${folder}: ${said}`);
  }
  const libraries = stdout.trim().split("\n").at(-1);
  const others = process.env.LD_LIBRARY_PATH ?? "";
  return { LD_LIBRARY_PATH: [libraries, ...(others === "" ? [] : [others])].join(":") };
}

/**
 * Makes a Python environment in CUDA's folder that has what peer_binding.py needs, from wheels beside it or from the
 * package index, unless INFER_BATCH_PYTHON names one. Names it in INFER_BATCH_PYTHON, where findPython looks.
 * @param {string | undefined} folder
 * @param {string} version of ONNX Runtime
 */
export function makePython(folder, version) {
  if (folder === undefined || process.env.INFER_BATCH_PYTHON !== undefined) {
    return;
  }
  const environment = join(resolve(folder), "python");
  const interpreter = join(environment, "bin/python");
  if (!existsSync(join(environment, "complete"))) {
    console.error(`installing Python's onnxruntime-gpu into ${environment}`);
    const wheels = join(resolve(folder), "wheels");
    const hasAll = ["onnxruntime_gpu", "numpy", "pyarrow"].every((name) => hasWheel(wheels, name));
    const source = hasAll ? ["--no-index", "--find-links", wheels] : [];
    const packages = [`onnxruntime-gpu==${version}`, "numpy", "pyarrow"];
    const steps = [
      ["python3", "-m", "venv", environment],
      [interpreter, "-m", "pip", "install", "--quiet", "--retries", "1", ...source, ...packages],
    ];
    for (const [file, ...args] of steps) {
      const { code, said } = command(args, { file: [file] });
      if (code !== 0) {
        console.error(`  going on without Python: ${lastLines(said)}`);
        return;
      }
    }
    writeFileSync(join(environment, "complete"), "");
  }
  process.env.INFER_BATCH_PYTHON = interpreter;
}

function hasWheel(folder, name) {
  return existsSync(folder) && readdirSync(folder).some((file) => file.startsWith(`${name}-`) && file.endsWith(".whl"));
}
