import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdir, readdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runCli } from "../support/cli.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { torture } from "../support/torture.js";

interface Manifest {
  readonly version: string;
  readonly files: readonly string[];
  readonly dependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

const readManifest = async (): Promise<Manifest> =>
  JSON.parse(await readFile(join(projectFolder, "package.json"), "utf8")) as Manifest;

const npm = (args: readonly string[], cwd: string): string => execFileSync("npm", args, { cwd, encoding: "utf8" });

const wine = fixtures[2] as (typeof fixtures)[number];

test("what users install has no install script, and the version of ONNX Runtime is the tested one", async () => {
  const { dependencies, devDependencies, peerDependencies } = await readManifest();
  expect(peerDependencies["onnxruntime-node"]).toBe(devDependencies["onnxruntime-node"]);
  const { packages } = JSON.parse(await readFile(join(projectFolder, "package-lock.json"), "utf8")) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean; hasInstallScript?: boolean }>;
  };
  const installed = Object.entries(packages).filter(
    ([name, { dev, devOptional }]) => name !== "" && !dev && !devOptional,
  );
  expect(installed.map(([name]) => name)).toContain("node_modules/@duckdb/node-bindings");
  expect(Object.keys(dependencies)).not.toContain("onnxruntime-node");
  expect(installed.filter(([, { hasInstallScript }]) => hasInstallScript)).toEqual([]);
});

/** Makes empty files of the same names: npm compresses all bytes of what it lists, which takes seconds for libraries. */
async function writeEmptyFiles(folder: string, model: string): Promise<void> {
  const entries = await readdir(model, { recursive: true, withFileTypes: true });
  for (const { parentPath, name } of entries.filter((entry) => entry.isFile())) {
    const path = join(folder, relative(model, parentPath), name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, "");
  }
}

test("the npm package has ONNX Runtime for the supported platforms, and scores without onnxruntime-node", async () => {
  const home = join(scratch.path, "installed");
  await mkdir(join(home, "scripts"), { recursive: true });
  await mkdir(join(home, "node_modules"));
  for (const part of ["bin", "dist/bundle", "package.json", "scripts/vendor.mjs"]) {
    await cp(join(projectFolder, part), join(home, part), { recursive: true });
  }
  await symlink(join(projectFolder, "node_modules/onnxruntime-node"), join(home, "node_modules/onnxruntime-node"));
  execFileSync(process.execPath, [join(home, "scripts/vendor.mjs")]);

  const alone = join(scratch.path, "alone");
  await mkdir(join(alone, "node_modules/@duckdb"), { recursive: true });
  for (const part of ["bin", "dist/bundle", "package.json"]) {
    await cp(join(home, part), join(alone, part), { recursive: true });
  }
  await rename(join(home, "vendor"), join(alone, "vendor"));
  await writeEmptyFiles(join(home, "vendor"), join(alone, "vendor"));
  const listed = spawnSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: home, encoding: "utf8" });
  const [packed] = JSON.parse(listed.stdout) as [{ files: { path: string }[] }];
  const vendored = packed.files.map(({ path }) => path).filter((path) => path.startsWith("vendor/"));
  expect(vendored.toSorted()).toEqual([
    "vendor/onnxruntime/LICENSE",
    "vendor/onnxruntime/bin/napi-v6/darwin/arm64/libonnxruntime.1.dylib",
    "vendor/onnxruntime/bin/napi-v6/darwin/arm64/onnxruntime_binding.node",
    "vendor/onnxruntime/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
    "vendor/onnxruntime/bin/napi-v6/linux/arm64/onnxruntime_binding.node",
    "vendor/onnxruntime/bin/napi-v6/linux/x64/libonnxruntime.so.1",
    "vendor/onnxruntime/bin/napi-v6/linux/x64/onnxruntime_binding.node",
    "vendor/onnxruntime/package.json",
  ]);

  for (const name of ["node-bindings", `node-bindings-${process.platform}-${process.arch}`]) {
    await symlink(join(projectFolder, "node_modules/@duckdb", name), join(alone, "node_modules/@duckdb", name));
  }
  const spec = await writeSpec(scratch.path, wine);
  const run = await runCli(["run", spec], { program: join(alone, "bin/infer-batch.js") });
  expect(run.code, run.stderr).toBe(0);
  const { stdout } = await runCli(["doctor", "--json"], { program: join(alone, "bin/infer-batch.js") });
  expect(stdout).toContain(join(alone, "vendor/onnxruntime/bin"));
});

test.skipIf(!torture)(
  "the packed tarball, installed from the registry into an empty prefix, scores (long form)",
  async () => {
    npm(["pack", "--silent", "--pack-destination", scratch.path], projectFolder);
    const { version } = await readManifest();
    const tarball = join(scratch.path, `infer-batch-${version}.tgz`);
    npm(["install", "--global", "--prefix", scratch.path, "--no-audit", "--no-fund", tarball], scratch.path);
    const installed = join(scratch.path, "lib/node_modules/infer-batch");
    expect(existsSync(join(installed, "node_modules/onnxruntime-node"))).toBe(false);
    expect(existsSync(join(installed, "docs/README.md"))).toBe(true);
    const spec = await writeSpec(scratch.path, wine);
    const run = await runCli(["run", spec], { program: join(installed, "bin/infer-batch.js") });
    expect(run.code, run.stderr).toBe(0);
  },
  600_000,
);
