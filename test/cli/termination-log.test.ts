import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { leaveLastWords } from "#src/cli/termination-log.js";
import { runCli } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";

describe("last words", () => {
  test("take the place of what was there", async () => {
    await using folder = await scratchFolder();
    const log = join(folder.path, "log");
    writeFileSync(log, "what somebody said before, which was longer");
    leaveLastWords("error: something\n", "  hint: do it\n", log);
    expect(readFileSync(log, "utf8")).toBe("error: something\n  hint: do it\n");
  });

  test.each(["x", "ä", "語", "🦜"])(
    "are at most 4096 bytes of whole characters (%s), the hint among them",
    async (letter) => {
      await using folder = await scratchFolder();
      const log = join(folder.path, "log");
      writeFileSync(log, "");
      leaveLastWords(`error: ${letter.repeat(5000)}`, "\n  hint: do it\n", log);
      const bytes = readFileSync(log);
      expect(bytes.length).toBeLessThanOrEqual(4096);
      expect(bytes.length).toBeGreaterThan(4092);
      const text = bytes.toString();
      expect(text).toMatch(new RegExp(`^error: (?:${letter})+\n  hint: do it\n$`));
      expect(text).not.toContain("\uFFFD");
    },
  );

  test("make the file that is named, with what was there in its place the next time", async () => {
    await using folder = await scratchFolder();
    const log = join(folder.path, "log");
    leaveLastWords("error: something long\n", "", log);
    expect(readFileSync(log, "utf8")).toBe("error: something long\n");
    leaveLastWords("error: else\n", "", log);
    expect(readFileSync(log, "utf8")).toBe("error: else\n");
  });

  test("have no character that a terminal obeys", async () => {
    await using folder = await scratchFolder();
    const log = join(folder.path, "log");
    leaveLastWords("error: a\u001B[2Jb\n", "  hint: c\u202Ed\n", log);
    expect(readFileSync(log, "utf8")).toBe("error: a\\x1b[2Jb\n  hint: c\\u202ed\n");
  });

  test("are cut where the hint alone is too long", async () => {
    await using folder = await scratchFolder();
    const log = join(folder.path, "log");
    leaveLastWords("error: something\n", "h".repeat(5000), log);
    expect(readFileSync(log, "utf8")).toBe("h".repeat(4096));
  });

  test("make no folder, follow no link, and wait for no pipe", async () => {
    await using folder = await scratchFolder();
    const kept = join(folder.path, "kept");
    writeFileSync(kept, "kept");
    symlinkSync(kept, join(folder.path, "link"));
    symlinkSync(join(folder.path, "made"), join(folder.path, "dangling"));
    mkdirSync(join(folder.path, "folder"));
    execFileSync("mkfifo", [join(folder.path, "pipe")]);
    for (const name of ["link", "dangling", "folder", "pipe", "not/there"]) {
      leaveLastWords("error: something\n", "", join(folder.path, name));
    }
    expect(readFileSync(kept, "utf8")).toBe("kept");
    expect(await readdir(folder.path)).toEqual(["dangling", "folder", "kept", "link", "pipe"]);
  });
});

describe("a command that fails leaves its last words where Kubernetes looks", () => {
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
  ])("$what", async ({ args, text }) => {
    await using folder = await scratchFolder();
    const log = join(folder.path, "log");
    writeFileSync(log, "");
    const { code } = await runCli(args, { env: { INFER_BATCH_TERMINATION_LOG: log } });
    expect(code).toBe(64);
    expect(readFileSync(log, "utf8")).toMatch(text);
  });
});
