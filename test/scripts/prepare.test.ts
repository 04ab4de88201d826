import { spawnSync } from "node:child_process";
import { copyFile, mkdir, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";

/** A build that adds a line to a file, and writes what the true one writes last. */
const build = `
const { appendFileSync, mkdirSync, writeFileSync } = require("node:fs");
mkdirSync("dist/bundle", { recursive: true });
appendFileSync("builds.txt", "built\\n");
writeFileSync("dist/bundle/LICENSES.txt", "");
`;

test("npm builds the program only if something that it is built from is newer", async () => {
  const at = (name: string): string => join(scratch.path, name);
  await mkdir(at("scripts"));
  await mkdir(at("src/deep"), { recursive: true });
  await copyFile(join(projectFolder, "scripts/prepare.mjs"), at("scripts/prepare.mjs"));
  await symlink(join(projectFolder, "node_modules"), at("node_modules"));
  await writeFile(at("build.cjs"), build);
  await writeFile(at("package.json"), JSON.stringify({ type: "module", scripts: { build: "node build.cjs" } }));
  await writeFile(at("src/deep/one.ts"), "");
  await writeFile(at("src/deep/two.ts"), "");

  /** Carries out the script, and returns how often the program was built by now. */
  const prepare = async (): Promise<number> => {
    const { status, stderr } = spawnSync(process.execPath, ["scripts/prepare.mjs"], {
      cwd: scratch.path,
      encoding: "utf8",
    });
    expect(status, stderr).toBe(0);
    return (await readFile(at("builds.txt"), "utf8")).split("\n").length - 1;
  };
  const age = async (name: string, seconds: number): Promise<void> => {
    const time = Date.now() / 1000 + seconds;
    await utimes(at(name), time, time);
  };
  expect(await prepare(), "nothing was built").toBe(1);
  expect(await prepare(), "nothing has changed").toBe(1);
  await age("src/deep/one.ts", 1);
  expect(await prepare(), "a file has changed").toBe(2);
  await age("src/deep/one.ts", -60);
  await age("dist/bundle/LICENSES.txt", 1);
  expect(await prepare()).toBe(2);
  await age("dist/bundle/LICENSES.txt", -1);
  await rm(at("src/deep/two.ts"));
  expect(await prepare(), "a file was removed").toBe(3);
  await rm(at("dist/bundle/LICENSES.txt"));
  expect(await prepare(), "a build was stopped").toBe(4);
});
