import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { installCuda } from "#src/app/cuda/install-cuda.js";
import { type Wheel, wheels, wheelsFor } from "#src/app/cuda/wheels.js";
import { thisMachine } from "#src/engine/devices/machine.js";
import { scratchFolder } from "../../support/job.js";
import { writeWheel } from "../../support/wheel.js";

const machine = thisMachine();
const log = (): void => undefined;
const fits = machine.platform === "linux/x64" && spawnSync("python3", ["--version"]).status === 0;

/** Writes a wheel into `wheels` of a folder, with these files. */
async function giveWheel(folder: string, name: string, files: Readonly<Record<string, string>>): Promise<Wheel> {
  const path = join(folder, "wheels", name);
  await mkdir(join(folder, "wheels"), { recursive: true });
  writeWheel(path, files);
  const sha256 = createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
  return { requirement: `${name}==1`, file: name, sha256 };
}

test("the wheels that are pinned are for the onnxruntime-node that is installed", () => {
  expect(wheelsFor).toBe(machine.runtime.version);
  expect(new Set(wheels.map(({ sha256 }) => sha256)).size).toBe(wheels.length);
});

test("CUDA is refused on a platform that has none", async () => {
  const other = { ...machine, platform: "darwin/arm64" };
  await expect(installCuda({ folder: "/nowhere", machine: other, log })).rejects.toMatchObject({ code: "USAGE" });
});

describe.skipIf(!fits)(`CUDA from wheels${fits ? "" : " (skipped: it needs Linux x64 and python3)"}`, () => {
  test("install-cuda unpacks CUDA's libraries from wheels in the folder, next to a copy of ONNX Runtime", async () => {
    await using scratch = await scratchFolder();
    const folder = scratch.path;
    const given = [
      await giveWheel(folder, "ort.whl", {
        "onnxruntime/capi/libonnxruntime_providers_cuda.so": "provider",
        "onnxruntime/capi/libonnxruntime.so.1.30.0": "of another build",
        "onnxruntime/capi/onnxruntime_pybind11_state.so": "for Python",
        "onnxruntime/__init__.py": "",
      }),
      await giveWheel(folder, "cublas.whl", { "nvidia/cu13/lib/libcublas.so.13": "cublas", "../../evil.so": "flat" }),
    ];
    const libraries = await installCuda({ folder, machine, log, wheels: given });
    expect(await readdir(libraries)).toEqual([
      "evil.so",
      "libcublas.so.13",
      "libonnxruntime.so.1",
      "libonnxruntime_providers_cuda.so",
      "onnxruntime-node.version",
    ]);
    expect(await readFile(join(libraries, "libcublas.so.13"), "utf8")).toBe("cublas");
    expect(await readdir(folder)).toEqual(["lib", "wheels"]);
    expect(await readdir(join(folder, "wheels"))).toEqual(["cublas.whl", "ort.whl"]);
  });

  test("CUDA is not installed from a wheel with another digest, and what was there stays", async () => {
    await using scratch = await scratchFolder();
    const folder = scratch.path;
    const wheel = await giveWheel(folder, "cublas.whl", { "lib/libcublas.so.13": "cublas" });
    await mkdir(join(folder, "lib"));
    await writeFile(join(folder, "lib/old.so"), "");
    await expect(
      installCuda({ folder, machine, log, wheels: [{ ...wheel, sha256: "0".repeat(64) }] }),
    ).rejects.toMatchObject({
      code: "USAGE",
      message: expect.stringContaining(`its sha256 is ${wheel.sha256}, not 0`),
    });
    expect(await readdir(join(folder, "lib"))).toEqual(["old.so"]);
  });
});
