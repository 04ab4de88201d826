import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openCodeCache } from "#src/start/code-cache.js";
import { scratchFolder } from "../support/job.js";

const text = "(function(){ function twice(x) { return 2 * x } return twice(21) })";
const other = "(function(){ return 'other' })";

/** Carries out a file's text with the cache, as a process would; whether V8 took what was kept. */
function start(
  file: string | undefined,
  texts: Readonly<Record<string, string>>,
): { said: unknown[]; taken: unknown[] } {
  const cache = openCodeCache(file);
  const scripts = Object.entries(texts).map(([name, code]) => cache.compile(name, code, `/bundle/${name}`));
  const said = scripts.map((script) => (script.runInThisContext() as () => unknown)());
  cache.keep();
  return { said, taken: scripts.map(({ cachedDataRejected }) => cachedDataRejected === false) };
}

const identity = (file: string): unknown => statSync(file, { bigint: true }).ino;

describe("what V8 made of a file", () => {
  test("is taken the next time, and not written again", async () => {
    await using scratch = await scratchFolder();
    const file = join(scratch.path, "code/kind/run");
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
    const before = identity(file);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [true] });
    expect(identity(file)).toBe(before);
    expect(readdirSync(join(scratch.path, "code/kind"))).toEqual(["run"]);
  });

  test("stays when another command line loads more", async () => {
    await using scratch = await scratchFolder();
    const file = join(scratch.path, "code/kind/run");
    start(file, { "a.js": text });
    start(file, { "b.js": other });
    expect(start(file, { "a.js": text, "b.js": other })).toEqual({ said: [42, "other"], taken: [true, true] });
  });

  test("is nobody else's to write", async () => {
    await using scratch = await scratchFolder();
    const file = join(scratch.path, "code/kind/run");
    start(file, { "a.js": text });
    expect([statSync(file).mode & 0o777, statSync(join(scratch.path, "code")).mode & 0o777]).toEqual([0o600, 0o700]);
    chmodSync(file, 0o620);
    expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
  });

  test("is not taken when a byte of it is another one", async () => {
    await using scratch = await scratchFolder();
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
  return openCodeCache(file).compile("a.js", text, "/bundle/a.js").cachedDataRejected;
}

test("without a file nothing is kept", () => {
  expect(start(undefined, { "a.js": text })).toEqual({ said: [42], taken: [false] });
});

test("where nothing can be written, nothing is said", async () => {
  await using scratch = await scratchFolder();
  writeFileSync(join(scratch.path, "code"), "a file, where a folder should be");
  const file = join(scratch.path, "code/kind/run");
  expect(start(file, { "a.js": text })).toEqual({ said: [42], taken: [false] });
  expect(readdirSync(scratch.path)).toEqual(["code"]);
});

test("of programs and versions of Node, the three that were used last are kept", async () => {
  await using scratch = await scratchFolder();
  const folder = join(scratch.path, "code");
  for (const [index, kind] of ["d", "c", "b", "a"].entries()) {
    mkdirSync(join(folder, kind), { recursive: true });
    utimesSync(join(folder, kind), 1000 + index, 1000 + index);
  }
  start(join(folder, "new/run"), { "a.js": text });
  expect(readdirSync(folder).toSorted()).toEqual(["a", "b", "new"]);
});
