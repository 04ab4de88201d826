import { execFileSync } from "node:child_process";
import { delimiter, join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { torture } from "../support/torture.js";

/** Starts, all fixtures with their golden rows, the way of a row in threads, and trees. */
const smoke = ["test/start/start.test.ts", "test/golden/golden.test.ts", "test/flow", "test/models/trees"];

test.skipIf(!torture || process.platform !== "linux").each([22, 24])(
  "Node %d runs a smoke suite (long form)",
  (major) => {
    const node = `node-linux-${process.arch}`;
    const install = ["install", "--no-save", "--no-audit", "--no-fund", "--prefix", scratch.path, `${node}@${major}`];
    execFileSync("npm", install, { cwd: scratch.path });
    const bin = join(scratch.path, "node_modules", node, "bin");
    const env = { ...process.env, PATH: `${bin}${delimiter}${process.env["PATH"] ?? ""}`, INFER_BATCH_TORTURE: "" };
    const vitest = [join(projectFolder, "node_modules/vitest/vitest.mjs"), "run", "--reporter=json", ...smoke];
    expect(execFileSync(join(bin, "node"), ["--version"], { encoding: "utf8" })).toMatch(new RegExp(`^v${major}\\.`));

    const said = execFileSync(join(bin, "node"), vitest, {
      cwd: projectFolder,
      env,
      encoding: "utf8",
      maxBuffer: 2 ** 28,
    });

    const { numPassedTests, success } = JSON.parse(said.slice(said.indexOf("{"))) as {
      numPassedTests: number;
      success: boolean;
    };
    expect(success).toBe(true);
    expect(numPassedTests).toBeGreaterThan(500);
  },
  1_200_000,
);
