import { execFile } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { fixtureNamed } from "../support/world.js";
import { scratch, writeSpec } from "../support/job.js";

const bundle = fileURLToPath(new URL("../../dist/bundle", import.meta.url));

/** By name, of the built program in a cache of its own: which file it is, and when it was written. */
function keptIn(cache: string): Record<string, string> {
  const code = join(cache, "infer-batch/code");
  const [kind, ...more] = readdirSync(code);
  expect(more).toEqual([]);
  const folder = join(code, kind as string);
  return Object.fromEntries(
    readdirSync(folder).map((name) => {
      const { ino, mtimeNs } = statSync(join(folder, name), { bigint: true });
      return [name, `${ino} ${mtimeNs}`];
    }),
  );
}

function filesIn(cache: string): string[] {
  const code = join(cache, "infer-batch/code");
  return readdirSync(code, { recursive: true, encoding: "utf8" })
    .map((name) => join(code, name))
    .filter((path) => statSync(path).isFile());
}

test("the code cache of the program is written by one process and used unchanged by the next", async () => {
  const fixture = fixtureNamed("penguins-lightgbm");
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const run = async (out: string): Promise<void> => {
    const spec = await writeSpec(scratch.path, fixture, { output: { parquet: { path: out } } });
    expect(await runCli(["run", spec], { env, ownCode: true })).toMatchObject({ code: 0 });
  };
  await run("first");
  const kept = keptIn(env.XDG_CACHE_HOME);
  expect(Object.keys(kept).toSorted()).toEqual(["run-entry-main.js", "thread-entry-scoring-worker.js"]);
  // Code that another installation of the same version compiled would name that one in stack traces.
  expect(filesIn(env.XDG_CACHE_HOME).filter((file) => readFileSync(file, "latin1").includes(bundle))).toEqual([]);
  // A thread that finds other work than before compiles more. What V8 refuses, such as code for other flags, is written
  // anew each time.
  const seen = [JSON.stringify(kept)];
  while (seen.length < 4 && seen.at(-1) !== seen.at(-2)) {
    await run(`out-${seen.length}`);
    seen.push(JSON.stringify(keptIn(env.XDG_CACHE_HOME)));
  }
  expect(seen.at(-1)).toBe(seen.at(-2));
});

/** Tells in a file of the threads that a process starts, and of the native libraries that it loads. */
const watch = `
  const { appendFileSync } = require("node:fs");
  const tell = (what) => appendFileSync(process.env.TOLD, what + "\\n");
  const { dlopen } = process;
  process.dlopen = (module, path, ...more) => {
    tell(path);
    return dlopen.call(process, module, path, ...more);
  };
  const threads = require("node:worker_threads");
  threads.Worker = class extends threads.Worker {
    constructor(...args) {
      tell("thread");
      super(...args);
    }
  };`;

/** The files of the bundle that loading one loads, itself among them. */
function loadedBy(name: string, all = new Set<string>()): Set<string> {
  if (!all.has(name)) {
    all.add(name);
    const requires = readFileSync(join(bundle, name), "latin1").matchAll(/(?<!=>)\brequire\("\.\/([^"]+)"\)/g);
    for (const [, required = ""] of requires) {
      loadedBy(required, all);
    }
  }
  return all;
}

test("no thread loads what the main thread reads specs with, a megabyte of code", () => {
  const threads = readdirSync(bundle).filter((name) => /^entry-.*-worker\.js$/.test(name));
  expect(threads).toContain("entry-reader-worker.js");
  for (const name of [...threads, "chunk-s3.js", "chunk-gcs.js", "chunk-azure.js"]) {
    expect([...loadedBy(name)], name).not.toContain("chunk-deciding.js");
  }
  expect([...loadedBy("chunk-page.js")]).toContain("chunk-deciding.js"); // if one did, it would be seen
});

test("a run that is complete starts no thread, and loads no native library and no client of HTTP", async () => {
  const preload = join(scratch.path, "watch.cjs");
  const modules = "process.once('exit', () => tell(process.moduleLoadList.join(' ')));";
  writeFileSync(preload, `${watch}${modules}`);
  const spec = await writeSpec(scratch.path, fixtureNamed("penguins-lightgbm"));
  const run = async (told: string): Promise<string> => {
    const env = { TOLD: join(scratch.path, told) };
    expect(await runCli(["run", spec], { node: [`--require=${preload}`], env })).toMatchObject({ code: 0 });
    return readFileSync(env.TOLD, "utf8");
  };
  expect(await run("first")).toMatch(/^thread[^]*duckdb\.node/);
  expect(await run("second")).not.toMatch(/^thread|\.node$|NativeModule (?:http|https|tls)\b/m);
});

test("a damaged code cache is written again, by several processes at once too", async () => {
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const spec = await writeSpec(scratch.path, fixtureNamed("penguins-lightgbm"));
  const plan = async (): Promise<string> => {
    const { code, stdout } = await runCli(["plan", spec], { env, ownCode: true });
    expect(code).toBe(0);
    return stdout;
  };
  const expected = await plan();
  for (const path of filesIn(env.XDG_CACHE_HOME)) {
    const bytes = readFileSync(path);
    bytes.fill(0x55, bytes.length >> 1);
    writeFileSync(path, bytes);
  }
  expect(await Promise.all([plan(), plan(), plan()])).toEqual([expected, expected, expected]);
  const kept = keptIn(env.XDG_CACHE_HOME);
  expect(await plan()).toBe(expected);
  expect(keptIn(env.XDG_CACHE_HOME)).toEqual(kept);
});

test("the code cache below the working directory is ignored", async () => {
  const env = { XDG_CACHE_HOME: "cache" };
  expect(await runCli(["--version"], { env, cwd: scratch.path, ownCode: true })).toMatchObject({ code: 0 });
  expect(readdirSync(scratch.path)).toEqual([]);
});

test("a module that cannot be loaded throws the same error each time", async () => {
  const name = readdirSync(bundle).find((file) =>
    readFileSync(join(bundle, file), "latin1").includes('require("@duckdb/node-bindings")'),
  );
  const twice = `for (let i = 0; i < 2; i += 1) try { load(${JSON.stringify(name)}) } catch ({ message }) { console.log(message) }`;
  const script = `process.dlopen = () => { throw new Error("not here") };
    const { load } = require(${JSON.stringify(join(bundle, "load.js"))}); ${twice}`;
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", script]);
  expect(stdout).toBe("not here\nnot here\n");
});

test("a module whose file could not be opened is loaded when it is required again", async () => {
  const name = readdirSync(bundle).find((file) => file.startsWith("chunk-"));
  const script = `
    const fs = require("node:fs");
    const { load } = require(${JSON.stringify(join(bundle, "load.js"))});
    const { readFileSync } = fs;
    const required = () => { try { return Object.keys(load(${JSON.stringify(name)})).length > 0; } catch (error) { return error.code; } };
    fs.readFileSync = () => { throw Object.assign(new Error("too many open files"), { code: "EMFILE" }); };
    const first = required();
    fs.readFileSync = readFileSync;
    console.log(first, required());`;
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", script]);
  expect(stdout).toBe("EMFILE true\n");
});

test("NODE_DISABLE_COMPILE_CACHE turns the code cache off", async () => {
  const env = { XDG_CACHE_HOME: scratch.path, NODE_DISABLE_COMPILE_CACHE: "1" };
  expect(await runCli(["--version"], { env, ownCode: true })).toMatchObject({ code: 0 });
  expect(readdirSync(scratch.path)).toEqual([]);
});

test("a process whose event loop runs empty before its command has ended fails", async () => {
  const spec = await writeSpec(scratch.path, fixtureNamed("penguins-lightgbm"));
  const never = "data:text/javascript,import fs from 'node:fs/promises';fs.readFile=()=>new Promise(()=>{})";
  const { code, stderr } = await runCli(["validate", spec], { node: [`--import=${never}`] });
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(
      `this is a bug in infer-batch[^]*the command has not ended: \`validate ${spec}\` after [0-9.]+ s; still open: `,
    ),
  ]);
});

test("the bundle is strict-mode code in ASCII", async () => {
  for (const name of readdirSync(bundle).filter((file) => file.endsWith(".js"))) {
    const bytes = await readFile(join(bundle, name));
    const beyond = bytes.findIndex((byte) => byte > 0x7f);
    expect(beyond, `${name}, byte ${beyond}`).toBe(-1);
    if (/^(entry|chunk)-/.test(name)) {
      expect(bytes.toString("latin1", 0, 100), name).toMatch(/^\(function\([\w,]+\)\{["'`]use strict["'`];/);
    }
  }
});
