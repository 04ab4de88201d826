import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { v8Flags } from "#src/start/v8-flags.js";
import { projectFolder, runCli } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import { fixtureNamed } from "../support/world.js";

/** Tells in a file, in order, of the flags that a process sets and of the threads that it starts. */
const watch = `
  const { appendFileSync } = require("node:fs");
  const tell = (what) => appendFileSync(process.env.TOLD, what + "\\n");
  const v8 = require("node:v8");
  const { setFlagsFromString } = v8;
  v8.setFlagsFromString = (flag) => {
    tell(flag);
    setFlagsFromString(flag);
  };
  const threads = require("node:worker_threads");
  threads.Worker = class extends threads.Worker {
    constructor(...args) {
      tell("thread");
      super(...args);
    }
  };
  process.once("exit", () => tell("gc: " + require("node:vm").runInNewContext("typeof gc")));`;

test("V8's flags are set before the first thread is started, and never changed", async () => {
  const preload = join(scratch.path, "watch.cjs");
  await writeFile(preload, watch);
  const told = join(scratch.path, "told");
  const spec = await writeSpec(scratch.path, fixtureNamed("digits-lightgbm"), {
    commit_rows: 100,
    engine: { threads: 2 },
  });
  const node = [`--require=${preload}`];
  const { code, stderr } = await runCli(["run", spec], { node, env: { TOLD: told } });
  expect(code, stderr).toBe(0);
  const seen = readFileSync(told, "utf8").trimEnd().split("\n");
  const first = seen.indexOf("thread");
  expect(seen.slice(0, first)).toEqual(v8Flags);
  expect(new Set(seen.slice(first))).toEqual(new Set(["thread", "gc: function"])); // of each thread

  await runCli(["serve", join(scratch.path, "no.yaml")], { node, env: { TOLD: `${told}-2` } });
  const ofServe = readFileSync(`${told}-2`, "utf8").split("\n");
  expect(ofServe.slice(0, v8Flags.length - 1)).toEqual(v8Flags.filter((flag) => flag !== "--no-incremental-marking"));
});

test("no code but that of the start sets flags of V8", () => {
  const source = join(projectFolder, "src");
  const setters = readdirSync(source, { recursive: true, encoding: "utf8" }).filter(
    (name) => name.endsWith(".ts") && /\bsetFlagsFromString\b/.test(readFileSync(join(source, name), "utf8")),
  );
  expect(setters).toEqual([join("start", "v8-flags.ts")]);
});
