import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { describe, expect, test } from "vitest";
import { openCodeCache } from "#src/start/code-cache.js";
import { scratch } from "../support/job.js";

const text = "(function(){ function twice(x) { return 2 * x } return twice(21) })";
const other = "(function(){ return 'other' })";

/** Carries out a file's text with the cache, as a process would; whether V8 took what was kept. */
function start(
  file: string | undefined,
  texts: Readonly<Record<string, string>>,
): { said: unknown[]; taken: unknown[] } {
  const cache = openCodeCache(file, { checkGrowth: false });
  const scripts = Object.entries(texts).map(([name, code]) => cache.compile(name, code, `/bundle/${name}`));
  const said = scripts.map((script) => (script.runInThisContext() as () => unknown)());
  cache.save();
  return { said, taken: scripts.map(({ cachedDataRejected }) => cachedDataRejected === false) };
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;
const identity = (file: string): unknown => statSync(file, { bigint: true }).ino;

describe("the code cache", () => {
  test("the code cache is used by the next process, and not written again", async () => {
    const file = join(scratch.path, "code/kind/run");
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
    const before = identity(file);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [true] });
    expect(identity(file)).toBe(before);
    expect(readdirSync(join(scratch.path, "code/kind"))).toEqual(["run"]);
  });

  test("the code cache keeps files when another command line loads more", async () => {
    const file = join(scratch.path, "code/kind/run");
    start(file, { "a.js": text });
    start(file, { "b.js": other });
    expect(start(file, { "a.js": text, "b.js": other })).toEqual({ said: [42, "other"], taken: [true, true] });
  });

  test("the code cache keeps the larger code of several processes, also if the smaller code is written last", async () => {
    const file = join(scratch.path, "code/kind/run");
    const [rich, poor] = [openCodeCache(file, { checkGrowth: true }), openCodeCache(file, { checkGrowth: true })];
    (rich.compile("a.js", text, "/rich/a.js").runInThisContext() as () => unknown)();
    poor.compile("a.js", text, "/poor/a.js"); // an idle thread: nothing is called
    rich.save();
    const { size } = statSync(file);
    poor.save();
    expect(statSync(file).size).toBe(size);
  });

  test("the code cache grows with checkGrowth", async () => {
    const file = join(scratch.path, "code/kind/run");
    const sizeAfter = (grows: boolean, called: boolean): number => {
      const cache = openCodeCache(file, { checkGrowth: grows });
      const run = cache.compile("a.js", text, `/${grows} ${called}/a.js`).runInThisContext() as () => unknown;
      expect(called ? run() : 42).toBe(42);
      cache.save();
      return statSync(file).size;
    };
    const first = sizeAfter(true, false);
    expect(sizeAfter(false, true)).toBe(first);
    const more = sizeAfter(true, true);
    expect(more).toBeGreaterThan(first);
    expect(sizeAfter(true, false)).toBe(more);
  });

  test("the code cache ignores files that another user can write", async () => {
    const cache = join(scratch.path, "user/infer-batch");
    const file = join(cache, "code/kind/run");
    start(file, { "a.js": text });
    expect([modeOf(file), modeOf(join(cache, "code")), modeOf(join(cache, "code/kind"))]).toEqual([
      0o600, 0o700, 0o700,
    ]);
    expect(modeOf(cache)).toBe(0o777 & ~process.umask()); // models lie there, too, which users may share
    chmodSync(file, 0o620);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
    expect(modeOf(file)).toBe(0o600);
    renameSync(file, join(scratch.path, "elsewhere"));
    symlinkSync(join(scratch.path, "elsewhere"), file);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
  });

  test.skipIf(process.geteuid?.() !== 0)("the code cache of another user is not used", async () => {
    const file = join(scratch.path, "code/kind/run");
    start(file, { "a.js": text });
    chownSync(file, 12345, 12345);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
  });

  test("the code cache removes old temporary files of killed processes", async () => {
    const folder = join(scratch.path, "code/kind");
    mkdirSync(folder, { recursive: true });
    for (const name of ["run.1-23", "run.4-56"]) {
      writeFileSync(join(folder, name), "half");
    }
    utimesSync(join(folder, "run.1-23"), 1000, 1000);
    start(join(folder, "run"), { "a.js": text });
    expect(readdirSync(folder).toSorted()).toEqual(["run", "run.4-56"]);
  });

  test("the code cache ignores a file with a changed byte", async () => {
    const file = join(scratch.path, "code/kind/run");
    start(file, { "a.js": text });
    const whole = readFileSync(file);
    for (let at = 0; at < whole.length; at += 1) {
      const spoilt = Buffer.from(whole);
      spoilt[at] = (spoilt[at] as number) ^ 4;
      writeFileSync(file, spoilt);
      expect(openTaken(file), `byte ${at}`).toBe(undefined);
    }
    for (const length of [0, 3, 8, whole.length - 1]) {
      writeFileSync(file, whole.subarray(0, length));
      expect(openTaken(file), `${length} bytes`).toBe(undefined);
    }
    writeFileSync(file, whole);
    expect(openTaken(file)).toBe(false);
  });
});

/** undefined: nothing was offered to V8. */
function openTaken(file: string): boolean | undefined {
  return openCodeCache(file, { checkGrowth: true }).compile("a.js", text, "/bundle/a.js").cachedDataRejected;
}

test("the code cache writes nothing without a file", () => {
  expect(start(undefined, { "a.js": text })).toEqual({ said: [42], taken: [false] });
});

test("the code cache is silent when it cannot be written", async () => {
  writeFileSync(join(scratch.path, "code"), "a file, where a folder should be");
  const file = join(scratch.path, "code/kind/run");
  expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
  expect(readdirSync(scratch.path)).toEqual(["code"]);
});

test("the code cache keeps the three folders that were written last", async () => {
  const folder = join(scratch.path, "code");
  for (const [index, kind] of ["d", "c", "b", "a"].entries()) {
    mkdirSync(join(folder, kind), { recursive: true });
    utimesSync(join(folder, kind), 1000 + index, 1000 + index);
  }
  start(join(folder, "new/run"), { "a.js": text });
  expect(readdirSync(folder).toSorted()).toEqual(["a", "b", "new"]);
});

test("the code cache compiles a file anew under other V8 flags, without writing", async () => {
  const file = join(scratch.path, "kind/command");
  start(file, { first: text, late: other });
  const { ino } = statSync(file);
  const cache = openCodeCache(file, { checkGrowth: true });
  cache.compile("first", text, "/elsewhere/first");
  setFlagsFromString("--no-lazy"); // no run sets it: those of runs may be set by another test of this process
  try {
    const late = cache.compile("late", other, "/elsewhere/late");
    expect(late.cachedDataRejected).toBe(true);
    expect((late.runInThisContext() as () => unknown)()).toBe("other");
  } finally {
    setFlagsFromString("--lazy");
  }
  cache.save();
  expect(statSync(file).ino).toBe(ino);
  expect(start(file, { first: text, late: other }).taken).toEqual([true, true]);
});
