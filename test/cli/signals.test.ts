import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";

/** Makes a process the first of its namespace, as a container without an init does. */
const mayUnshare = spawnSync("unshare", ["--pid", "--fork", "true"]).status === 0;

test.skipIf(!mayUnshare)("the first process of a container ends on a second signal", () => {
  const signals = join(projectFolder, "dist/cli/failure.js");
  const script = `
    import { abortOnSignals } from ${JSON.stringify(signals)};
    abortOnSignals({ stderr: { raw: process.stderr } }, {});
    setInterval(() => {}, 1000);
    process.kill(process.pid, "SIGTERM");
    setTimeout(() => process.kill(process.pid, "SIGTERM"), 50);
    console.log(process.pid);`;
  const args = ["--pid", "--fork", "--kill-child", process.execPath, "--input-type=module", "--eval", script];

  const { status, stdout } = spawnSync("unshare", args, { encoding: "utf8", timeout: 40_000, killSignal: "SIGKILL" });

  expect([stdout, status]).toEqual(["1\n", 143]);
});
