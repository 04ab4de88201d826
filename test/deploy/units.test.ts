import { spawnSync } from "node:child_process";
import { chmod, mkdir, utimes, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, expect, test } from "vitest";
import { deployText, finalCodes } from "../support/deploy.js";
import { scratch } from "../support/job.js";

function valuesOf(unit: string, key: string): string[] {
  return [...unit.matchAll(new RegExp(`^${key}=(.*)$`, "gm"))].map(([, value]) => value ?? "");
}

describe("the systemd units", () => {
  const names = ["infer-batch@.service", "infer-batch@.timer", "infer-batch-failed@.service"];
  const service = deployText("systemd/infer-batch@.service");
  const hasSystemd = spawnSync("systemd-analyze", ["--version"]).status === 0;

  test.skipIf(!hasSystemd)("systemd accepts the units", async () => {
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
    const found = `${stdout}${stderr}`.split("\n").filter((line) => /infer-batch/.test(line));
    // systemd 254 brought the key.
    expect(found.filter((line) => !line.includes("Unknown key 'RestartMode'"))).toEqual([]);
  });

  test.skipIf(!hasSystemd)("a drop-in that systemd accepts lets the service see NVIDIA's devices", async () => {
    const unit = join(scratch.path, "infer-batch@daily.service");
    await writeFile(unit, service.replace("/usr/local/bin/infer-batch", "/bin/true"));
    await writeFile(
      join(scratch.path, "infer-batch-failed@.service"),
      deployText("systemd/infer-batch-failed@.service"),
    );
    await mkdir(`${unit}.d`);
    const verify = async (text: string): Promise<string[]> => {
      await writeFile(join(`${unit}.d`, "gpu.conf"), text);
      const { stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", unit], { encoding: "utf8" });
      return stderr.split("\n").filter((line) => line.includes("gpu.conf"));
    };
    const dropIn = deployText("systemd/gpu.conf");
    expect(await verify(dropIn)).toEqual([]);
    expect(await verify(dropIn.replace("DeviceAllow", "DeviceAllowed"))).toHaveLength(1);
    expect(valuesOf(service, "PrivateDevices")).toEqual(["yes"]); // which hides /dev/nvidia*
    expect(valuesOf(dropIn, "PrivateDevices")).toEqual(["no"]);
    expect(valuesOf(dropIn, "DeviceAllow")).toEqual(["char-nvidia* rw"]);
    expect(deployText("systemd/README.md")).toContain("install -D -m 644 gpu.conf ");
  });

  test("units retry transient errors only", () => {
    expect(valuesOf(service, "Restart")).toEqual(["on-failure"]);
    expect(valuesOf(service, "RestartPreventExitStatus")).toEqual([finalCodes.join(" ")]);
  });

  test("a unit passes the day on which its timer fired, also to a retry on a later day", async () => {
    const stamp = join(scratch.path, "stamp-infer-batch@daily.timer");
    const start = (): { status: number | null; stdout: string } => {
      const [script = ""] = valuesOf(service, "ExecStart").map((line) => /^\/bin\/sh -euc '(.*)'$/.exec(line)?.[1]);
      const shell = script
        .replace("/var/lib/systemd/timers", scratch.path)
        .replace("/usr/local/bin/infer-batch", 'printf "%%s\\n"')
        .replaceAll("%N", "infer-batch@daily")
        .replaceAll("%i", "daily")
        .replaceAll(/([$%])\1/g, "$1");
      return spawnSync("/bin/sh", ["-euc", shell], { encoding: "utf8" });
    };
    expect(valuesOf(deployText("systemd/infer-batch@.timer"), "Persistent")).toEqual(["true"]); // or there is no stamp
    expect(start()).toMatchObject({ status: 64, stdout: "" });
    await writeFile(stamp, "");
    const fired = new Date("2026-01-31T02:12:34Z");
    await utimes(stamp, fired, fired);
    expect(start()).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^run\n\/etc\/infer-batch\/daily\.yaml\n--param\nds=2026-01-31\n/),
    });
  });

  test.skipIf(!hasSystemd)("the unit for failures mails the end of the log that journalctl prints", async () => {
    await writeFile(join(scratch.path, "mail"), '#!/bin/sh\nprintf "%s\\n" "$@"\ncat > /dev/null\n');
    await chmod(join(scratch.path, "mail"), 0o755);
    const failed = deployText("systemd/infer-batch-failed@.service");
    const [command = ""] = valuesOf(failed, "ExecStart").map((line) => /^\/bin\/sh -c '(.*)'$/.exec(line)?.[1]);
    const [, to] = valuesOf(failed, "Environment").join().split("MAILTO=");
    const shell = command.replaceAll("%i", "infer-batch@daily.service").replace("%H", "host").replaceAll("$$", "$");
    const { stdout, stderr } = spawnSync("/bin/sh", ["-c", shell], {
      encoding: "utf8",
      env: { PATH: [scratch.path, process.env["PATH"]].join(delimiter), MAILTO: to },
    });
    expect(stdout).toBe("-s\ninfer-batch@daily.service failed on host\ndata-team@example.org\n");
    expect(stderr).not.toMatch(/option|argument/); // a machine may have no journal
  });

  test("the service names the unit for failures, which exists, and starts it when no attempt follows", () => {
    expect(valuesOf(service, "OnFailure")).toEqual(["infer-batch-failed@%n.service"]);
    expect(valuesOf(service, "RestartMode")).toEqual(["direct"]);
  });

  test("the service may write to the folder that its page has made, and starts without it, too", () => {
    expect(valuesOf(service, "ReadWritePaths")).toEqual(["-/srv/predictions"]);
    expect(deployText("systemd/README.md")).toContain("install -d --owner=infer-batch /srv/predictions");
  });
});

const line = /^[\d*].*$/m.exec(deployText("cron/infer-batch.cron"))?.[0] ?? "";
const [, user, command = ""] = /^(?:\S+ ){5}(\S+) (.*)$/.exec(line) ?? [];

test("the crontab line passes the day in cron's time zone, exits with the code of the run, and starts no second run while one is at work", async () => {
  const shell = command.replaceAll(String.raw`\%`, "%").replace("/var/cache/infer-batch/", `${scratch.path}/`);
  const program = join(scratch.path, "infer-batch");
  // While it is at work, cron comes once more.
  await writeFile(
    program,
    '#!/bin/sh\nprintf "%s\\n" "$@"\n[ -n "$AGAIN" ] || { AGAIN=1 sh -c "$COMMAND"; echo "other: $?"; }\nexit 75\n',
  );
  await chmod(program, 0o755);
  const PATH = [scratch.path, process.env["PATH"]].join(delimiter);
  // A zone where it is another day than in UTC; TZ counts westward.
  const hours = new Date().getUTCHours() < 12 ? -14 : 14;
  const env = { PATH, COMMAND: shell, TZ: `HERE${hours < 0 ? "+" : "-"}14` };
  const { status, stdout } = spawnSync("/bin/sh", ["-c", shell], { encoding: "utf8", env });
  const day = new Date(Date.now() + hours * 3_600_000).toISOString().slice(0, 10);
  expect([user, status]).toEqual(["infer-batch", 75]);
  expect(stdout).toBe(`run\n/etc/infer-batch/daily-churn.yaml\n--param\nds=${day}\n--quiet\nother: 0\n`);
});

test("the crontab line has no percent sign that cron would read as the end of a line", () => {
  expect(command.replaceAll(String.raw`\%`, "")).not.toContain("%");
});
