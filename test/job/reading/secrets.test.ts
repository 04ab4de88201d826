import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { failureText, fileError, readSecret } from "#src/job/reading.js";
import { expectEnd, runHere } from "../../support/cli.js";
import { scratch, type SpecOverrides, writeSpec } from "../../support/job.js";
import { fixtureNamed } from "../../support/world.js";

const key = "job.yaml:4:9: output.postgres.password";

const refusal = async (reading: Promise<string>): Promise<string> => {
  const error: unknown = await reading.catch((thrown: unknown) => thrown);
  return error instanceof JobError ? `${error.exitCode} ${error.message}` : String(error);
};

test.each([
  ["s3cret", "s3cret"],
  ["s3cret\n", "s3cret"],
  ["s3cret\r\n", "s3cret"],
  ["s3cret\n\n", "s3cret\n"],
  [" pass word \n", " pass word "],
  ["ключ/@:#%\n", "ключ/@:#%"],
])("%j is read as %j, with any permissions of the file", async (text, secret) => {
  await writeFile(join(scratch.path, "x"), text);
  await chmod(join(scratch.path, "x"), 0o644);
  expect(await readSecret("${file:x}", { folder: scratch.path, key })).toBe(secret);
  expect(await readSecret(`\${file:${join(scratch.path, "x")}}`, { folder: "/nowhere", key })).toBe(secret);
});

test("a secret that names no file is used as it is", async () => {
  expect(await readSecret("${x} $file:x {file:x}", { folder: "/nowhere", key })).toBe("${x} $file:x {file:x}");
});

test("a file that cannot be a secret is refused with 64, by the key and the path", async () => {
  const { path: folder } = scratch;
  await mkdir(join(folder, "folder"));
  await writeFile(join(folder, "empty"), "\n");
  await writeFile(join(folder, "bytes"), "a\0b");
  await writeFile(join(folder, "large"), "x".repeat(64 * 1024 + 1));
  const said = async (name: string): Promise<string> => refusal(readSecret(`\${file:${name}}`, { folder, key }));
  expect(await said("none")).toBe(`64 reading ${key}: none: there is no such file or folder (ENOENT)`);
  expect(await said("folder")).toBe(`64 reading ${key}: folder: it is a folder (EISDIR)`);
  expect(await said("empty")).toBe(`64 reading ${key}: empty: it is empty`);
  expect(await said("bytes")).toBe(`64 reading ${key}: bytes: it is no text`);
  expect(await said("large")).toBe(`64 reading ${key}: large: it has more than 64 KiB`);
  expect(await said("/dev/zero")).toBe(`64 reading ${key}: /dev/zero: it has more than 64 KiB`);
});

const diabetes = fixtureNamed("diabetes-mlp");
const postgres = { table: "scores.predictions" };

test("a spec with ${file:…} whose file is missing ends with 64, and the error names the file and the place in the spec", async () => {
  for (const name of ["url", "password"]) {
    const output = { parquet: undefined, postgres: { ...postgres, [name]: "${file:/run/no/such}" } };
    const spec = await writeSpec(scratch.path, diabetes, { output });
    for (const command of ["run", "plan", "status"]) {
      const { code, stderr } = await runHere([command, spec]);
      expect([command, code]).toEqual([command, 64]);
      expect(stderr).toMatch(
        new RegExp(
          `error: reading \\S+job\\.yaml:\\d+:\\d+: output\\.postgres\\.${name}: /run/no/such: there is no such`,
        ),
      );
    }
  }
});

test("a spec may have ${file:…} only as the whole value of a key that holds a secret", async () => {
  const said = async (overrides: SpecOverrides): Promise<string> => {
    const { stderr } = await expectEnd(runHere(["plan", await writeSpec(scratch.path, diabetes, overrides)]), 64);
    return stderr;
  };
  expect(await said({ params: { ds: "${file:/run/x}" } })).toContain(
    "params.ds: found ${file:…}, which only keys that hold a secret take, such as output.postgres.url,",
  );
  expect(await said({ input: { where: "a = ${file:/run/x}" } })).toContain("input.where: found ${file:…}, which only");
  const inside = { parquet: undefined, postgres: { ...postgres, url: "postgres://ana:${file:/run/x}@host/db" } };
  expect(await said({ output: inside })).toContain("output.postgres.url: found ${file:…} inside a text");
});

test("a file with the URL of a report that is missing or wrong is a warning in the log, and does not fail the run", async () => {
  await writeFile(join(scratch.path, "url"), "not-a-url-secret");
  for (const [value, found] of [
    ["${file:/run/no/such}", "/run/no/such: there is no such file"],
    ["${file:url}", "the file does not hold an http(s) URL"],
  ]) {
    const spec = await writeSpec(scratch.path, diabetes, { report: { on_success: value } });
    const { stderr } = await expectEnd(runHere(["run", spec, "--no-progress", "--log-level", "debug"]), 0, found ?? "");
    expect(stderr).not.toContain("not-a-url-secret");
  }
});

function told(errno: string): unknown {
  return fileError("reading job.yaml", Object.assign(new Error(errno), { code: errno }), "name another");
}

describe("the error for a file that a user named", () => {
  test.each([
    ["ENOENT", "FILE_MISSING", 64],
    ["EISDIR", "FILE_MISSING", 64],
    ["ENOTDIR", "FILE_MISSING", 64],
    ["EACCES", "PERMISSION", 64],
    ["EROFS", "PERMISSION", 64],
  ])("%s is a permanent error, whose hint asks for another name", (errno, code, exitCode) => {
    expect(told(errno)).toMatchObject({ code, exitCode, hint: "name another" });
  });

  test.each(["EIO", "ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ESTALE"])(
    "%s is a temporary error, whose hint is to run the command again",
    (errno) => {
      expect(told(errno)).toMatchObject({
        code: "DISK",
        exitCode: 75,
        message: expect.stringContaining(errno),
        hint: expect.stringContaining("run the same command again"),
      });
    },
  );

  test.each([
    ["EACCES", "permission denied (EACCES); name another"],
    ["ENOSPC", "the disk is full (ENOSPC); free some space, then run the same command again"],
    ["EODD", "EODD; name another"],
  ])("the error %s is described in one line: %s", (errno, line) => {
    expect(failureText(Object.assign(new Error(errno), { code: errno }), "name another")).toBe(line);
  });

  test("an error that is not a system error is returned unchanged", () => {
    const others = [new JobError("USAGE", "reading --param x"), new TypeError("a bug"), "thrown"];
    expect(others.map((other) => fileError("reading", other, ""))).toEqual(others);
  });

  test.runIf(process.platform === "linux")("a spec on a disk that fails is tried again", async () => {
    await expectEnd(runHere(["run", "/proc/self/mem"]), 75, /^error: reading \/proc\/self\/mem: .* \(EIO\)\n/);
  });
});
