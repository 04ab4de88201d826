import { spawnSync } from "node:child_process";
import { pathToFileURL } from "node:url";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { filesAtOnce, refuseFewFiles } from "#src/duckdb/instance.js";
import { projectFolder } from "../support/cli.js";

const moduleAt = (path: string): string => pathToFileURL(join(projectFolder, path)).href;

function openWith(free: number): { signal: string | null; said: string } {
  const script = `
    import { openSync, closeSync } from "node:fs";
    import "@duckdb/node-api";
    import { openDuckDb } from ${JSON.stringify(moduleAt("dist/duckdb/instance.js"))};
    const taken = [];
    try {
      for (;;) taken.push(openSync("/dev/null"));
    } catch {}
    taken.splice(0, ${free}).forEach((file) => closeSync(file));
    await openDuckDb({ threads: 1, allowed: {} }).then(
      () => console.log("opened"),
      ({ code, message, hint }) => console.log(code + " " + message + " " + hint),
    );`;
  const command = [
    'ulimit -c 0; ulimit -n 256 && exec "$@"',
    "sh",
    process.execPath,
    "--input-type=module",
    "-e",
    script,
  ];
  const { signal, stdout } = spawnSync("sh", ["-c", ...command], { encoding: "utf8", cwd: projectFolder });
  return { signal, said: stdout.trim() };
}

describe.runIf(process.platform === "linux")("DuckDB, which aborts if it cannot open a file", () => {
  test.each([0, 1, 5])("DuckDB is not opened when %i more files may be open", (free) => {
    const { signal, said } = openWith(free);
    expect(signal).toBeNull();
    expect(said).toMatch(
      /EMFILE|^DISK opening DuckDB: 25\d of at most 256 files are open, and \d+ more .* raise the limit/,
    );
  });

  test("DuckDB is opened when two hundred more files may be open", () => {
    expect(openWith(200)).toEqual({ signal: null, said: "opened" });
  });
});

test("a limit of open files is refused if the threads of all cores could reach it", () => {
  const act = "opening DuckDB";
  expect(() => refuseFewFiles(act, { limit: 100, open: 77 }, 2)).toThrow(
    "opening DuckDB: 77 of at most 100 files are open, and 24 more must be free",
  );
  expect(() => refuseFewFiles(act, { limit: 100, open: 76 }, 2)).not.toThrow();
  expect(() => refuseFewFiles(act, { limit: 100, open: 76 }, 3)).toThrow(/28 more/);
  expect(() => refuseFewFiles(act, { limit: Number.POSITIVE_INFINITY, open: 0 }, 64)).not.toThrow();
});

test("at most a quarter of the remaining open files is used at once, and at least one file", () => {
  expect([0, 3, 8, 400, 2000].map((free) => filesAtOnce(256, { limit: 50 + free, open: 50 }))).toEqual([
    1, 1, 2, 100, 256,
  ]);
  expect(filesAtOnce(256, { limit: Number.POSITIVE_INFINITY, open: 0 })).toBe(256);
});

test("times are read and written alike on machines of all zones and calendars", () => {
  const script = `
    import { openDuckDb } from ${JSON.stringify(moduleAt("dist/duckdb/instance.js"))};
    const connection = await (await openDuckDb({ threads: 1, allowed: {} })).connect();
    const read = await connection.runAndReadAll("SELECT TIMESTAMPTZ '2026-11-20 06:00:00+00'::VARCHAR");
    console.log(String(read.getRows()));`;
  const options = {
    encoding: "utf8",
    cwd: projectFolder,
    env: { ...process.env, TZ: "Asia/Tokyo", LC_ALL: "fa_IR.UTF-8" },
  } as const;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", script], options);
  expect(stdout).toBe("2026-11-20 06:00:00+00\n");
});
