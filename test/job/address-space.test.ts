import { spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { addressSpaceBytes, refuseSmallAddressSpace, usableCores } from "#src/job/machine.js";
import { projectFolder } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { firstOf } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const program = "bin/infer-batch.js";
const gib = 1024 ** 3;
const limits = (bytes: string): string =>
  `Limit                     Soft Limit           Hard Limit           Units     \nMax address space         ${bytes}           unlimited            bytes     \n`;

test("a limit of addresses is read from what Linux says of the process", () => {
  expect(addressSpaceBytes(() => limits("1610612736"))).toBe(1.5 * gib);
  expect(addressSpaceBytes(() => limits("unlimited"))).toBe(Number.POSITIVE_INFINITY);
  expect(addressSpaceBytes(() => undefined)).toBe(Number.POSITIVE_INFINITY);
});

const cores = (bytes: string): number =>
  usableCores(16, (path) => (path === "/proc/self/limits" ? limits(bytes) : undefined));

test("a limit of addresses leaves room for fewer threads, at least for one", () => {
  expect([2, 3, 4, 8].map((size) => cores(String(size * gib)))).toEqual([1, 2, 4, 10]);
  expect([cores("unlimited"), cores("1")]).toEqual([16, 1]);
});

test("a limit of addresses that leaves room for no thread is 64, with what to do", () => {
  refuseSmallAddressSpace(2 * gib);
  expect(() => {
    refuseSmallAddressSpace(1.5 * gib);
  }).toThrow(
    expect.objectContaining({
      exitCode: 64,
      message: "starting threads: ulimit -v leaves 1.5 GiB of addresses, and scoring reserves at least 2 GiB",
      hint: expect.stringContaining("ulimit -v unlimited"),
    }),
  );
});

/** Runs node under `ulimit -v`. */
const limited = (kib: number | "unlimited", ...args: readonly string[]): { status: number | null; stderr: string } =>
  spawnSync("sh", ["-c", `ulimit -v ${kib}; exec "$0" "$@"`, process.execPath, ...args], {
    cwd: projectFolder,
    encoding: "utf8",
    env: { ...process.env, NO_COLOR: "1" },
  });

describe.skipIf(process.platform !== "linux")("a command under ulimit -v", () => {
  test("a command under ulimit -v says that it has too few addresses in place of aborting in V8", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"));
    for (const command of firstOf(["run", "doctor", "validate", "plan"], 2)) {
      const { status, stderr } = limited(1_500_000, program, command, spec);
      expect(status, `${command}: ${stderr}`).toBe(64);
      expect(stderr).toMatch(/^error: starting threads: ulimit -v leaves 1\.4 GiB of addresses/m);
    }
  });

  test("a run under ulimit -v has as many threads as it leaves addresses for", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { engine: { threads: 64 } });
    // The test pretends that the machine has 16 cores, on which 16 threads would take 10 GiB.
    const preload = join(scratch.path, "cores.mjs");
    const code = `import os from "node:os"; import { syncBuiltinESMExports } from "node:module";
      os.availableParallelism = () => 16; syncBuiltinESMExports();`;
    await writeFile(preload, code);
    const { status, stderr } = limited(4_500_000, `--import=${preload}`, program, "run", spec);
    expect(status, stderr).toBe(0);
  });

  test("a run under ulimit -v makes no WebAssembly, which reserves 10 GiB of addresses", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { reuse: { key: ["id"] } });
    const preload = join(scratch.path, "webassembly.mjs");
    await writeFile(preload, `WebAssembly.Instance = function () { console.error("made WebAssembly"); };`);
    const unlimited = limited("unlimited", `--import=${preload}`, program, "run", spec, "--new-run");
    expect([unlimited.status, unlimited.stderr]).toEqual([0, expect.stringContaining("made WebAssembly")]);
    const { status, stderr } = limited(16_000_000, `--import=${preload}`, program, "run", spec, "--new-run");
    expect([status, stderr]).toEqual([0, expect.not.stringContaining("made WebAssembly")]);
  });
});
