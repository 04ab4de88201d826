import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { writeTerminationMessage } from "#src/cli/failure.js";
import { runCli } from "../support/cli.js";
import { scratch } from "../support/job.js";

describe("a termination message", () => {
  test("a termination message replaces the earlier one", async () => {
    const log = join(scratch.path, "log");
    writeFileSync(log, "what somebody said before, which was longer");
    writeTerminationMessage("error: something\n", "  hint: do it\n", log);
    expect(readFileSync(log, "utf8")).toBe("error: something\n  hint: do it\n");
  });

  test.each(["x", "ä", "語", "🦜"])(
    "a termination message has at most 4096 bytes of whole characters (%s), the hint included",
    async (letter) => {
      const log = join(scratch.path, "log");
      writeFileSync(log, "");
      writeTerminationMessage(`error: ${letter.repeat(5000)}`, "\n  hint: do it\n", log);
      const bytes = readFileSync(log);
      expect(bytes.length).toBeLessThanOrEqual(4096);
      expect(bytes.length).toBeGreaterThan(4092);
      const text = bytes.toString();
      expect(text).toMatch(new RegExp(`^error: (?:${letter})+\n  hint: do it\n$`));
      expect(text).not.toContain("\uFFFD");
    },
  );

  test("a termination message creates the named file, and replaces its content the next time", async () => {
    const log = join(scratch.path, "log");
    writeTerminationMessage("error: something long\n", "", log);
    expect(readFileSync(log, "utf8")).toBe("error: something long\n");
    writeTerminationMessage("error: else\n", "", log);
    expect(readFileSync(log, "utf8")).toBe("error: else\n");
  });

  test("a termination message has no control character", async () => {
    const log = join(scratch.path, "log");
    writeTerminationMessage("error: a\u001B[2Jb\n", "  hint: c\u202Ed\n", log);
    expect(readFileSync(log, "utf8")).toBe("error: a\\x1b[2Jb\n  hint: c\\u202ed\n");
  });

  test("a termination message is cut when the hint alone is too long", async () => {
    const log = join(scratch.path, "log");
    writeTerminationMessage("error: something\n", "h".repeat(5000), log);
    expect(readFileSync(log, "utf8")).toBe("h".repeat(4096));
  });

  test("a termination message creates no folder, follows no link, and waits for no FIFO", async () => {
    const kept = join(scratch.path, "kept");
    writeFileSync(kept, "kept");
    symlinkSync(kept, join(scratch.path, "link"));
    symlinkSync(join(scratch.path, "made"), join(scratch.path, "dangling"));
    mkdirSync(join(scratch.path, "folder"));
    execFileSync("mkfifo", [join(scratch.path, "pipe")]);
    for (const name of ["link", "dangling", "folder", "pipe", "not/there"]) {
      writeTerminationMessage("error: something\n", "", join(scratch.path, name));
    }
    expect(readFileSync(kept, "utf8")).toBe("kept");
    expect(await readdir(scratch.path)).toEqual(["dangling", "folder", "kept", "link", "pipe"]);
  });
});

test.each([
  {
    what: "a spec that is not there",
    args: ["run", "nowhere.yaml", "--log-format", "json"],
    text: /^error: reading nowhere\.yaml: there is no such file or folder \(ENOENT\)\n {2}hint: /,
  },
  { what: "no command", args: [], text: /^error: there is no command\n$/ },
  {
    what: "an option that is not there",
    args: ["run", "job.yaml", "--jsno"],
    text: /^error: unknown option '--jsno'\n/,
  },
])("a command that fails with $what writes a termination message", async ({ args, text }) => {
  const log = join(scratch.path, "log");
  writeFileSync(log, "");
  const { code } = await runCli(args, { env: { INFER_BATCH_TERMINATION_LOG: log } });
  expect(code).toBe(64);
  expect(readFileSync(log, "utf8")).toMatch(text);
});
