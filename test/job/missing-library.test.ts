import { cp, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { JobError } from "#src/base/errors.js";
import { machineError } from "#src/job/machine.js";
import { providerMissing } from "#src/job/providers.js";
import { gpuParts } from "#src/models/devices.js";
import { expectEnd, projectFolder, runCli } from "../support/cli.js";
import { fixtures, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { goodMachine, lddText, libraries, type MachineFacts, machineOf } from "../support/machine.js";
import { promptJob } from "../support/prompt-job.js";
import { textJob } from "../support/text-job.js";

const wine = fixtures[2] as (typeof fixtures)[number];
const platform = `${process.platform}-${process.arch}`;

/** The program as `npm ci` installs it on a machine of another platform: its own native packages are not there. */
async function installWithout(library: "duckdb" | "onnxruntime" | "tokenizers", folder: string): Promise<string> {
  const modules = join(folder, "node_modules");
  for (const part of ["bin", "dist/bundle", "package.json"]) {
    await cp(join(projectFolder, part), join(folder, part), { recursive: true });
  }
  await mkdir(join(modules, "@duckdb"), { recursive: true });
  const copy = async (name: string): Promise<void> => {
    const from = join(projectFolder, "node_modules", name);
    // Not the libraries of all platforms, which are hundreds of megabytes.
    await cp(from, join(modules, name), { recursive: true, filter: (path) => path !== join(from, "bin") });
  };
  const link = async (name: string): Promise<void> => {
    await symlink(join(projectFolder, "node_modules", name), join(modules, name));
  };
  await link("onnxruntime-common");
  if (library === "tokenizers") {
    await link("@duckdb/node-bindings");
    await link("onnxruntime-node");
  } else if (library === "duckdb") {
    await copy("@duckdb/node-bindings");
    await link("onnxruntime-node");
  } else {
    await link("@duckdb/node-bindings");
    await copy("onnxruntime-node");
  }
  return join(folder, "bin/infer-batch.js");
}

describe("a native library of another platform", () => {
  test.each([
    { library: "duckdb", name: "DuckDB", commands: ["run", "doctor"] },
    { library: "onnxruntime", name: "ONNX Runtime", commands: ["run", "plan", "doctor"] },
  ] as const)("a command that needs $name ends with 64 and says to install it for this platform", async (missing) => {
    await using folder = await scratchFolder();
    const program = await installWithout(missing.library, join(folder.path, "installed"));
    const spec = await writeSpec(folder.path, wine);
    for (const command of missing.commands) {
      const ended = await runCli([command, spec], { program });
      expect(ended.stderr).toContain(
        `error: loading ${missing.name}: its native library for ${platform} is not installed`,
      );
      expect(ended.stderr).toMatch(/\n {2}hint: run `npm ci` on this machine/);
      expect([command, ended.code, ended.stderr.includes("\n    at ")]).toEqual([command, 64, false]);
    }
  });

  test("a job that tokenizes texts ends with 64 without the package tokenizers, and other jobs do without it", async () => {
    const installed = join(scratch.path, "installed");
    const program = await installWithout("tokenizers", installed);
    const { spec } = await textJob(scratch.path);
    const expectRefused = async (command: string, finding: string): Promise<void> => {
      const ended = await runCli([command, spec], { program });
      expect(ended.stderr).toContain(`error: loading the package tokenizers, which makes tokens of texts: ${finding}`);
      expect(ended.stderr).toMatch(
        /\n {2}hint: run `npm install tokenizers@[\d.]+` in the project that has infer-batch; or `npm install --global tokenizers@/,
      );
      expect([ended.code, ended.stderr.includes("\n    at ")]).toEqual([64, false]);
    };
    await expectRefused("run", "it is not installed");
    await expectRefused("doctor", "it is not installed");
    await using prompts = await promptJob({ model: { prompt: { user: "{{body}}", tokenizer: "tokenizer.json" } } });
    await cp(join(projectFolder, "fixtures/tokenizers/bert.json"), join(prompts.folder, "tokenizer.json"));
    expect((await expectEnd(runCli(["plan", prompts.spec], { program }), 0)).stdout).toMatch(
      /tokens in \(by bytes, .*\n(?:.*\n)*untried +tokens were not counted: .*it is not installed/,
    );
    await expectEnd(runCli(["run", await writeSpec(installed, wine)], { program }), 0);
    expect((await expectEnd(runCli(["doctor"], { program }), 0)).stdout).toMatch(
      /tokenizers +optional +only jobs that tokenize texts need it: npm install tokenizers@/,
    );

    const module = join(installed, "node_modules/tokenizers");
    await mkdir(module);
    await writeFile(join(module, "package.json"), JSON.stringify({ name: "tokenizers", version: "0.1.0" }));
    await expectRefused("run", "it has version 0.1.0, not 0.");
  });

  test("a library that the system cannot load is reported with the reason", () => {
    const said = "libc.musl-x86_64.so.1: cannot open shared object file: No such file or directory";
    const cause = Object.assign(new Error(`${said}, /x/@duckdb/node-bindings-linux-x64/duckdb.node`), {
      code: "ERR_DLOPEN_FAILED",
    });
    expect(machineError(new Error("x", { cause }))).toMatchObject({
      exitCode: 64,
      message: expect.stringMatching(
        /^loading DuckDB: its native library for \S+ cannot be loaded \(libc\.musl/,
      ) as string,
    });
  });

  test("a module of our own that is missing stays a bug", () => {
    const own = Object.assign(new Error("Cannot find module './chunk-running.js'"), { code: "MODULE_NOT_FOUND" });
    expect(machineError(own)).toBeUndefined();
  });
});

const { files = {}, names = {}, programs = {} } = goodMachine;
const notLoaded = "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library";
const noDevice = "CUDA failure 100: no CUDA-capable device is detected";

async function errorOn(facts: MachineFacts, message: string, device = 0): Promise<JobError> {
  const machine = machineOf(facts);
  const parts = await gpuParts("cuda", machine, device);
  return providerMissing({
    doing: "opening execution provider cuda",
    parts,
    message,
    machine,
    asked: ["cuda"],
    advice: "look at the driver",
  });
}

/** The image for GPUs: all that CUDA needs but the driver and the device, which the machine gives. */
const image: MachineFacts = {
  env: { NVIDIA_VISIBLE_DEVICES: "all" },
  names: { [libraries]: names[libraries] ?? [] },
  programs: { ldd: lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "" }) },
};
const withDriver = {
  files: { "/proc/driver/nvidia/version": files["/proc/driver/nvidia/version"] ?? "" },
  programs: { ldd: lddText({ "libcudart.so.13": "/cuda", "libcuda.so.1": "/lib" }) },
};

test.each<[string, MachineFacts, string, string]>([
  [
    "the device plug-in named a GPU, and the pod has no driver",
    { ...image, env: { NVIDIA_VISIBLE_DEVICES: "GPU-1" } },
    notLoaded,
    "NVIDIA driver: libcuda.so.1 is nowhere; GPUs: none; this machine has a GPU (NVIDIA_VISIBLE_DEVICES is GPU-1), which fails",
  ],
  [
    "the GPU fell off the bus",
    { ...image, ...withDriver, env: { NVIDIA_VISIBLE_DEVICES: "MIG-2" } },
    noDevice,
    `${noDevice}; GPUs: none; this machine has a GPU (NVIDIA_VISIBLE_DEVICES is MIG-2, the kernel has driver 580.65.06), which fails`,
  ],
  [
    "a device file is there, and CUDA finds no device",
    { ...image, ...withDriver, names: { ...image.names, "/dev": ["nvidia0", "nvidiactl"] } },
    noDevice,
    `${noDevice}; this machine has a GPU (there is /dev/nvidia0, the kernel has driver 580.65.06), which fails`,
  ],
  [
    "all is there, and the GPU is sick",
    goodMachine,
    "CUDA failure 999: unknown error",
    "CUDA failure 999: unknown error; this machine has a GPU (there is /dev/nvidia0, the kernel has driver 580.65.06), which fails",
  ],
])("a GPU that fails is 75, and the message says why one is expected: %s", async (_what, facts, said, why) => {
  const error = await errorOn(facts, said);

  expect(error).toMatchObject({ exitCode: 75, code: "DEVICE" });
  expect(error.message).toBe(`opening execution provider cuda: ${why}`);
});

test.each<[string, MachineFacts, string, number?]>([
  ["no GPU at all", { ...image, env: {} }, notLoaded],
  ["NVIDIA's image on a machine without a GPU", image, notLoaded],
  ["a container that is to have none", { ...image, env: { NVIDIA_VISIBLE_DEVICES: "void" } }, notLoaded],
  ["a container without GPUs on a host that has some", { ...image, files: withDriver.files }, notLoaded],
  ["GPUs that are hidden", { ...goodMachine, env: { CUDA_VISIBLE_DEVICES: "-1" } }, noDevice],
  ["a device_id that is none", goodMachine, "CUDA failure 101: invalid device ordinal", 2],
  ["an old driver", goodMachine, "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"],
  [
    "a GPU without CUDA's libraries",
    { ...goodMachine, programs: { ...programs, ldd: lddText({ "libcudart.so.13": "", "libcuda.so.1": "/lib" }) } },
    notLoaded,
  ],
  [
    "a failing GPU and no provider library",
    { ...image, env: { NVIDIA_VISIBLE_DEVICES: "GPU-1" }, names: {} },
    notLoaded,
  ],
])("a machine that can never run CUDA ends a run with 64: %s", async (_what, facts, said, device) => {
  const error = await errorOn(facts, said, device);

  expect(error, error.message).toMatchObject({ exitCode: 64, code: "PROVIDER_MISSING" });
});
