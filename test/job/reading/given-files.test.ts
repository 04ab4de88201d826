import { describe, expect, test } from "vitest";
import { failureText, fileError } from "#src/job/reading.js";
import { JobError } from "#src/base/errors.js";
import { expectEnd, runHere } from "../../support/cli.js";

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
