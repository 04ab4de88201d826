import { spawnSync, type SpawnSyncReturns } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { machineError } from "#src/job/machine.js";
import { JobError } from "#src/base/errors.js";
import { projectFolder } from "../support/cli.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";
import { torture } from "../support/torture.js";

const wine = fixtures[2] as (typeof fixtures)[number];
const program = join(projectFolder, "bin/infer-batch.js");
const limited = 'ulimit -n "$0" && exec "$@"';

function withLimit(files: number, args: readonly string[]): SpawnSyncReturns<string> {
  const command = [limited, String(files), process.execPath, program, ...args];
  return spawnSync("sh", ["-c", ...command], { encoding: "utf8", timeout: 60_000, stdio: ["ignore", "pipe", "pipe"] });
}

/** With fewer, Node or what begins the program ends before anything of ours can say why. */
function fewestFiles(): number {
  for (let files = 10; files < 64; files += 1) {
    if (withLimit(files, ["--version"]).status === 0) {
      return files;
    }
  }
  throw new Error("the program does not start");
}

const shards = [0, 1, 2, 3, 4].map((part) => join(projectFolder, `fixtures/data/wine/part-0000${part}.parquet`));
/** The short form: each eighth of them. */
const firstFew = Array.from({ length: 16 }, (_, index) => index).filter((more) => torture || more % 8 === 0);

describe.runIf(process.platform === "linux")("a command with a low limit of open files exits with 0 or 75", () => {
  const fewest = fewestFiles();

  test.each(firstFew)(
    "a command exits with 0 or 75 when it may open %i more files than it needs to start",
    async (more) => {
      const spec = await writeSpec(scratch.path, wine, { input: { path: shards } });
      const ended = [
        withLimit(fewest + more, ["plan", spec]),
        withLimit(fewest + more, ["run", spec, "--no-progress"]),
        withLimit(fewest + more, ["inspect", join(projectFolder, "fixtures/models", wine.model)]),
      ];
      for (const { status, stderr, signal } of ended) {
        expect([0, 75], `${signal} ${stderr}`).toContain(status);
        if (status === 75) {
          expect(stderr).toContain("hint: raise the limit of open files");
        }
      }
    },
  );
});

test.runIf(process.platform === "linux")(
  "a process at its limit of open files does not report ONNX Runtime as not installed",
  () => {
    const script = `
      import { openSync } from "node:fs";
      import { runtimeFolder } from ${JSON.stringify(pathToFileURL(join(projectFolder, "dist/models/runtime-folder.js")))};
      try { for (;;) openSync("/dev/null"); } catch {}
      try { runtimeFolder(); } catch (error) { console.log(error.code); }`;
    const command = [limited, "64", process.execPath, "--input-type=module", "--eval", script];
    expect(spawnSync("sh", ["-c", ...command], { encoding: "utf8" }).stdout).toBe("EMFILE\n");
  },
);

function system(code: string): Error {
  return Object.assign(new Error(`${code}: too many open files, open 'x'`), { code });
}

describe("errors that say that too many files are open", () => {
  test.each([
    system("EMFILE"),
    system("ENFILE"),
    new Error("Worker initialization failure: EMFILE"),
    new Error('IO Error: Cannot open file "a.parquet": Too many open files'),
    new Error("duckdb.node: cannot open shared object file: Too many open files"),
    new Error("the inference thread broke", { cause: system("EMFILE") }),
    new JobError("SHARD_CORRUPT", "reading a.parquet: it cannot be opened", { cause: system("EMFILE") }),
  ])("%s", (error) => {
    expect(machineError(error)).toMatchObject({ code: "DISK", exitCode: 75 });
  });

  test.each([
    system("EACCES"),
    new JobError("USAGE", "reading /a: Too many open files"),
    new JobError("BAD_ROW", "scoring a.parquet row 3", {
      cause: new Error("Conversion Error: Could not convert string 'EMFILE: too many open files' to INT32"),
    }),
    "EMFILE: thrown",
    undefined,
  ])("this error does not count as too many open files: %s", (error) => {
    expect(machineError(error)).toBeUndefined();
  });
});
