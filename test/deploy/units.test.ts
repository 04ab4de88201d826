import { spawnSync } from "node:child_process";
import { chmod, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, expect, test } from "vitest";
import { deployText, finalCodes } from "../support/deploy.js";
import { scratchFolder } from "../support/job.js";

/** Values of a key of a unit. */
function valuesOf(unit: string, key: string): string[] {
  return [...unit.matchAll(new RegExp(`^${key}=(.*)$`, "gm"))].map(([, value]) => value ?? "");
}

describe("the systemd units", () => {
  const names = ["infer-batch@.service", "infer-batch@.timer", "infer-batch-failed@.service"];
  const service = deployText("systemd/infer-batch@.service");
  const hasSystemd = spawnSync("systemd-analyze", ["--version"]).status === 0;

  test.skipIf(!hasSystemd)("hold, as systemd reads them", async () => {
    await using scratch = await scratchFolder();
    const instances = { "infer-batch@": "infer-batch@daily", "infer-batch-failed@": "infer-batch-failed@daily" };
    const files = names.map((name) => {
      const [stem = "", kind = ""] = name.split(".");
      return { name, path: join(scratch.path, `${instances[stem as keyof typeof instances]}.${kind}`) };
    });
    for (const { name, path } of files) {
      // What it starts must be there.
      await writeFile(path, deployText(`systemd/${name}`).replace("/usr/local/bin/infer-batch", "/bin/true"));
    }
    const { stdout, stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", ...files.map(({ path }) => path)], {
      encoding: "utf8",
    });
    expect(
      `${stdout}${stderr}`.split("\n").filter((line) => line.includes(scratch.path) || line.includes("infer-batch")),
    ).toEqual([]);
  });

  test("try again, but not what no retry mends", () => {
    expect(valuesOf(service, "Restart")).toEqual(["on-failure"]);
    expect(valuesOf(service, "RestartPreventExitStatus")).toEqual([finalCodes.join(" ")]);
  });

  test("mail a failure by a unit that is there", () => {
    expect(valuesOf(service, "OnFailure")).toEqual(["infer-batch-failed@%n.service"]);
  });
});

describe("the crontab", () => {
  const line = /^[\d*].*$/m.exec(deployText("cron/infer-batch.cron"))?.[0] ?? "";
  const [, user, command = ""] = /^(?:\S+ ){5}(\S+) (.*)$/.exec(line) ?? [];

  test("gives the day, ends as the run does, and leaves alone who is at work", async () => {
    await using scratch = await scratchFolder();
    const shell = command.replaceAll(String.raw`\%`, "%").replace("/var/cache/infer-batch/", `${scratch.path}/`);
    const program = join(scratch.path, "infer-batch");
    // While it is at work, cron comes once more.
    await writeFile(
      program,
      '#!/bin/sh\nprintf "%s\\n" "$@"\n[ -n "$AGAIN" ] || { AGAIN=1 sh -c "$COMMAND"; echo "other: $?"; }\nexit 75\n',
    );
    await chmod(program, 0o755);
    const PATH = [scratch.path, process.env["PATH"]].join(delimiter);
    const { status, stdout } = spawnSync("/bin/sh", ["-c", shell], { encoding: "utf8", env: { PATH, COMMAND: shell } });
    const day = new Date().toISOString().slice(0, 10);
    expect([user, status]).toEqual(["infer-batch", 75]);
    expect(stdout).toBe(`run\n/etc/infer-batch/daily-churn.yaml\n--param\nds=${day}\n--quiet\nother: 0\n`);
  });

  test("has no percent sign that cron would take for a line's end", () => {
    expect(command.replaceAll(String.raw`\%`, "")).not.toContain("%");
  });
});
