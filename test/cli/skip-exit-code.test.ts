import { describe, expect, test } from "vitest";
import { skipExitCode } from "#src/cli/commands/run.js";
import { exitCodes } from "#src/base/errors.js";
import { runCli } from "../support/cli.js";
import { type Fixture, fixtures, scratch, writeSpec } from "../support/job.js";
import { scoreHere } from "../support/score.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;

describe("--skip-exit-code", () => {
  test("--skip-exit-code is the exit code of a run that is already complete, and of no other", async () => {
    const spec = await writeSpec(scratch.path, wine);
    const first = await runCli(["run", spec, "--json", "--skip-exit-code", "99"]);
    const second = await runCli(["run", spec, "--json", "--skip-exit-code", "99"]);
    expect([first.code, second.code]).toEqual([0, 99]);
    expect([first, second].map(({ stdout }) => (JSON.parse(stdout) as { status: string }).status)).toEqual([
      "complete",
      "already_complete",
    ]);
    expect(second.stderr).toBe("");
    expect((await scoreHere(spec)).status).toBe("already_complete");
  });

  test.each([3, 63, 68, 99, 125])("--skip-exit-code may be %d", (code) => {
    expect(skipExitCode(String(code))).toBe(code);
  });

  test.each(
    [...new Set(Object.values(exitCodes))]
      .map(String)
      .concat("0", "1", "2", "126", "137", "255", "256", "-1", "9.5", "1e1", "", "x"),
  )("may not be '%s'", (text) => {
    expect(() => skipExitCode(text)).toThrow(
      /^(Exit code \d+ means something else here; 99 is free|Expected a number from 3 to 125, such as 99)\.$/,
    );
  });
});
