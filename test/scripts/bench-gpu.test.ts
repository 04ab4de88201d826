import { execFileSync, spawnSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterEach, describe, expect, test, vi } from "vitest";
import { cudaEnv, makePython } from "../../bench/gpu/commands.mjs";
import { encoder, hungry, hungryLine } from "../../bench/gpu/models.mjs";
import { allProviders, formatResults, merge, whyNotRun, withResults } from "../../bench/gpu/results.mjs";
import { projectFolder, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { findSoftwareGpu, noGpu } from "../support/swiftshader.js";
import { torture } from "../support/torture.js";
import { writeWheel } from "../support/wheel.js";
import { fixtureNamed } from "../support/world.js";

afterEach(() => {
  vi.unstubAllEnvs();
});

async function predict(model: Uint8Array, input: string, rows: readonly (readonly number[])[]): Promise<number[]> {
  const session = await InferenceSession.create(model, { intraOpNumThreads: 1, logSeverityLevel: 3 });
  const values = new Tensor("float32", Float32Array.from(rows.flat()), [rows.length, rows[0]?.length ?? 0]);
  const [output] = Object.values(await session.run({ [input]: values }));
  await session.release();
  return Array.from(output?.data as Float32Array);
}

test("bench:gpu's model that takes a lot of memory gives the predictions that the script expects", async () => {
  const size = { width: 16, tensors: 3 };
  const { slope, offset } = hungryLine(size);
  expect(await predict(hungry(size), "x", [[0], [1], [2]])).toEqual([0, 1, 2].map((x) => slope * x + offset));
  expect(await predict(hungry({ width: 16, tensors: 1 }), "x", [[0], [2]])).toEqual([7, 9]);
});

test("bench:gpu's encoder predicts each row by itself, and mixes the tokens of a row", async () => {
  const model = encoder({ tokens: 4, width: 8, layers: 2 });
  const rows = [
    [1, -2, 3, 0.5],
    [0, 4, -1, 2],
  ];
  const [first = Number.NaN, second = Number.NaN] = await predict(model, "input", rows);
  expect((await predict(model, "input", rows.slice(1)))[0]).toBeCloseTo(second, 5);
  expect(Number.isFinite(first) && first !== second).toBe(true);
  const [other] = await predict(model, "input", [[1, -2, 3, 0.75]]);
  expect(other).not.toBeCloseTo(first, 5);
});

const part = (rows: readonly (readonly string[])[]): Parameters<typeof merge>[1]["parts"][string] => ({
  title: "A part",
  rows,
  command: "npm run bench:gpu",
  date: "2026-01-31",
});
const results = {
  machine: "a machine",
  versions: ["Node 20"],
  short: true,
  notRun: { cuda: "no NVIDIA GPU here" },
  parts: {
    jobs: part([
      ["model", "provider", "rows/s", "ratio"],
      ["MLP", "cpu", "2,000", "0.9"],
      ["MLP", "webgpu", "1,000", "–"],
    ]),
    curve: {
      ...part([
        ["rows in a batch", "cpu", "webgpu"],
        ["64", "10", "20"],
      ]),
      title: "Another",
      commit: "0123abcd",
    },
  },
};

test("bench:gpu's tables have a row or a column for each provider that did not run, with the reason", () => {
  const text = formatResults(results, ["jobs", "curve", "memory"]);
  expect(text).toContain("- `cuda` was not run: no NVIDIA GPU here.");
  expect(text).toContain("| all | cuda | not run: no NVIDIA GPU here | – |\n");
  expect(text).toContain("| rows in a batch | cpu | webgpu | cuda: not run, no NVIDIA GPU here |\n");
  expect(text).toContain("| 64 | 10 | 20 | – |");
  expect(text).toContain("**A part** (`npm run bench:gpu`, 2026-01-31)");
  expect(text).toContain("**Another** (`npm run bench:gpu`, 2026-01-31, 0123abcd)");
  expect(text).toContain("**memory** not measured.");
});

test("bench:gpu writes its tables between the marks of bench/results-gpu.md, and nothing else of the page", async () => {
  const page = await readFile(join(projectFolder, "bench/results-gpu.md"), "utf8");
  const text = "what was measured: 42";
  const once = withResults(page, text);
  const [before = "", after = ""] = once.split(text);
  expect([page.startsWith(before), page.endsWith(after)]).toEqual([true, true]);
  expect(withResults(withResults(page, "others"), text)).toBe(once);
  expect(() => withResults("a page without marks", "text")).toThrow("the page has no <!-- npm run bench:gpu -->");
});

test("bench:gpu adds a part to those of the same machine, and drops those of another one", () => {
  const added = { ...results, parts: { memory: part([["provider"], ["cpu"]]) } };
  expect(Object.keys(merge(results, added).parts)).toEqual(["jobs", "curve", "memory"]);
  expect(Object.keys(merge({ ...results, machine: "another" }, added).parts)).toEqual(["memory"]);
  expect(Object.keys(merge({ ...results, short: false }, added).parts)).toEqual(["memory"]);
});

test("bench:gpu says why a provider did not run, by what doctor finds on this machine", async () => {
  const engine = { providers: allProviders.toReversed() };
  const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { engine });
  const { stdout } = await runHere(["doctor", spec, "--json"], { env: { ...noGpu, CUDA_VISIBLE_DEVICES: "-1" } });
  const reasons = whyNotRun(JSON.parse(stdout));
  expect(Object.keys(reasons)).toEqual(["webgpu", "cuda", "tensorrt"]);
  expect(reasons).toMatchObject({
    cuda: "no NVIDIA GPU here",
    webgpu: expect.stringMatching(/^Vulkan (loader|drivers): /),
  });
});

test("bench:gpu puts CUDA's folder in front of the loader's path, and leaves the rest of it", async () => {
  const libraries = join(scratch.path, "onnxruntime/capi");
  await mkdir(libraries, { recursive: true });
  await writeFile(join(libraries, "libonnxruntime.so.1"), ""); // so that nothing is installed
  vi.stubEnv("LD_LIBRARY_PATH", "/opt/driver");
  const nvidia = ["cu13", "cudnn"].map((name) => `${scratch.path}/nvidia/${name}/lib`);
  expect(cudaEnv(scratch.path)).toEqual({ LD_LIBRARY_PATH: [libraries, ...nvidia, "/opt/driver"].join(":") });
  expect(cudaEnv(undefined)).toEqual({});
});

/** Writes a wheel that has one empty module. */
function writeModule(folder: string, project: string, version: string): void {
  const info = `${project}-${version}.dist-info`;
  writeWheel(join(folder, `${project}-${version}-py3-none-any.whl`), {
    [`${project}/__init__.py`]: "",
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${project}\nVersion: ${version}\n`,
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    [`${info}/RECORD`]: "",
  });
}

describe.runIf(torture)("the long form of bench:gpu (npm run torture)", () => {
  test("makes its Python environment from wheels beside the libraries, without a network", async (context) => {
    context.skip(spawnSync("python3", ["-m", "venv", "--help"]).status !== 0, "there is no python3 with venv");
    const wheels = join(scratch.path, "wheels");
    await mkdir(wheels);
    for (const project of ["onnxruntime_gpu", "numpy", "pyarrow"]) {
      writeModule(wheels, project, "1.30.0");
    }
    vi.stubEnv("PIP_INDEX_URL", "http://127.0.0.1:9/");
    vi.stubEnv("INFER_BATCH_PYTHON", undefined);
    makePython(scratch.path, "1.30.0");
    const python = process.env["INFER_BATCH_PYTHON"] ?? "";
    expect(python).toBe(join(scratch.path, "python/bin/python"));
    execFileSync(python, ["-c", "import onnxruntime_gpu, numpy, pyarrow"]);
  });

  test("measures every part on SwiftShader, and ends with 0", { timeout: 3_600_000 }, async (context) => {
    const gpu = findSoftwareGpu();
    context.skip(gpu.missing !== undefined, gpu.missing);
    const page = join(projectFolder, "bench/results-gpu.md");
    const before = await readFile(page, "utf8");
    const ran = spawnSync(process.execPath, ["bench/gpu/run.mjs", "--short"], {
      cwd: projectFolder,
      encoding: "utf8",
      env: { ...process.env, ...(gpu.missing === undefined ? gpu.env : {}) },
    });
    expect(ran.status, ran.stderr).toBe(0);
    const sections = ran.stdout.split("\n**").slice(1);
    expect(sections).toHaveLength(7);
    for (const section of sections) {
      expect(section, section).toMatch(/\| webgpu \|/);
      expect(section, section).toMatch(/cuda(: not run| \| not run: |.*\d)/);
    }
    expect(ran.stdout).not.toContain("exit code");
    expect(ran.stdout).toMatch(/\| webgpu \| 16,384 \| 1 \| 8,192 \| 20,000 of 20,000 \|/);
    expect(ran.stdout).toMatch(/\| webgpu \| .* \| each row once \|/);
    const resumed = "each row once, the same verdict and profile, the same challenger's figures";
    expect(ran.stdout).toMatch(new RegExp(`\\| webgpu \\| 0 \\| 67 \\| f0 \\| .* \\| ${resumed} \\|`));
    expect(await readFile(page, "utf8")).toBe(before);
  });
});
