import { spawnSync } from "node:child_process";
import { chmod, copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { projectFolder } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";

const lockFile = z.looseObject({ packages: z.record(z.string(), z.looseObject({ integrity: z.string().optional() })) });
type Packages = z.infer<typeof lockFile>["packages"];

const arm = "node_modules/@duckdb/node-bindings-linux-arm64";
const x64 = "node_modules/@duckdb/node-bindings-linux-x64";

interface Project extends AsyncDisposable {
  readonly path: string;
  packages(): Promise<Packages>;
  /** Carries out the script; `answer`: what `npm view` prints, and its exit code. */
  complete(args: readonly string[], answer?: { text: string; code: number }): { code: number | null; said: string };
}

/** The lock and what completes it, in a folder of their own. */
async function projectWith(change: (packages: Packages) => void): Promise<Project> {
  const scratch = await scratchFolder();
  const at = (name: string): string => join(scratch.path, name);
  await mkdir(at("scripts"));
  for (const name of ["package.json", "package-lock.json", "scripts/complete-lock.mjs"]) {
    await copyFile(join(projectFolder, name), at(name));
  }
  const read = async (): Promise<z.infer<typeof lockFile>> =>
    lockFile.parse(JSON.parse(await readFile(at("package-lock.json"), "utf8")));
  const lock = await read();
  // One package is unverified, as if the registry had no digest of it.
  const { integrity: _, ...unverified } = entry(lock.packages, arm);
  lock.packages[arm] = unverified;
  const name = arm.replace(/^.*node_modules\//, "");
  await writeFile(at("scripts/unverified.json"), JSON.stringify([`${name}@${String(unverified["version"])}`]));
  change(lock.packages);
  await writeFile(at("package-lock.json"), JSON.stringify(lock));
  await writeFile(at("npm"), '#!/bin/sh\nprintf "%s" "$ANSWER"\nexit "$CODE"\n');
  await chmod(at("npm"), 0o755);
  return {
    path: scratch.path,
    packages: async () => (await read()).packages,
    complete(args, { text, code } = { text: "", code: 1 }) {
      const env = { PATH: [scratch.path, process.env["PATH"]].join(delimiter), ANSWER: text, CODE: String(code) };
      const { status, stderr } = spawnSync(process.execPath, [at("scripts/complete-lock.mjs"), ...args], {
        encoding: "utf8",
        env,
      });
      return { code: status, said: stderr };
    },
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

function entry(packages: Packages, name: string): Packages[string] {
  const found = packages[name];
  if (found === undefined) {
    throw new Error(`the lock has no ${name}`);
  }
  return found;
}

describe("the check of the lock", () => {
  test("finds nothing in ours", async () => {
    await using project = await projectWith(() => undefined);
    expect(project.complete(["--check"])).toEqual({ code: 0, said: "" });
  });

  test.each<{ what: string; change: (packages: Packages) => void; said: RegExp }>([
    {
      what: "a platform's package that npm left out",
      change: (packages) => void delete packages[arm],
      said: /node-bindings-linux-arm64@\S+ has no entry/,
    },
    {
      what: "a package without a digest",
      change: (packages) => void delete entry(packages, x64).integrity,
      said: /node-bindings-linux-x64@\S+ has no integrity/,
    },
    {
      what: "a digest that came since",
      change: (packages) => Object.assign(entry(packages, arm), { integrity: "sha512-0" }),
      said: /node-bindings-linux-arm64@\S+ is in unverified\.json in vain/,
    },
    {
      what: "a registry's address",
      change: (packages) => Object.assign(entry(packages, x64), { resolved: "https://mirror.example/x64.tgz" }),
      said: /node-bindings-linux-x64@\S+ names a registry/,
    },
    {
      what: "an install script that fetches CUDA files",
      change: (packages) => Object.assign(entry(packages, "node_modules/onnxruntime-node"), { hasInstallScript: true }),
      said: /npm 10 would run onnxruntime-node's script/,
    },
    {
      what: "an install script without a decision",
      change: (packages) => Object.assign(entry(packages, "node_modules/zod"), { hasInstallScript: true }),
      said: /zod@\S+ has an install script that allowScripts in package\.json does not decide about/,
    },
  ])("finds $what", async ({ change, said }) => {
    await using project = await projectWith(change);
    expect(project.complete(["--check"])).toEqual({ code: 1, said: expect.stringMatching(said) });
  });
});

describe("completing the lock", () => {
  test("adds what npm left out, with the digest that the registry tells, and the check is content", async () => {
    await using project = await projectWith((packages) => void delete packages[arm]);
    expect(project.complete([], { text: '"sha512-told"', code: 0 })).toEqual({ code: 0, said: "" });
    expect((await project.packages())[arm]).toMatchObject({ integrity: "sha512-told", os: ["linux"], cpu: ["arm64"] });
    expect(project.complete(["--check"])).toEqual({ code: 0, said: "" });
    expect(JSON.parse(await readFile(join(project.path, "scripts/unverified.json"), "utf8"))).toEqual([]);
  });

  test("completing the lock omits a digest that the registry does not have, and lists the package", async () => {
    await using project = await projectWith((packages) => void delete packages[arm]);
    expect(project.complete([], { text: '{"error":{"code":"E404"}}', code: 1 })).toEqual({ code: 0, said: "" });
    expect((await project.packages())[arm]).not.toHaveProperty("integrity");
    expect(project.complete(["--check"])).toEqual({ code: 0, said: "" });
    expect(await readFile(join(project.path, "scripts/unverified.json"), "utf8")).toContain("linux-arm64@");
  });

  test("changes nothing when the registry cannot be asked", async () => {
    await using project = await projectWith((packages) => void delete packages[arm]);
    const { code, said } = project.complete([], {
      text: '{"error":{"code":"ECONNREFUSED","summary":"away"}}',
      code: 1,
    });
    expect([code, said]).toEqual([1, expect.stringContaining("asking the registry for ")]);
    expect(await project.packages()).not.toHaveProperty([arm]);
  });
});
