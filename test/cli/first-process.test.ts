import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { firstBelow, until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

/** Makes a process the first of its namespace, as a container without an init does. */
const mayUnshare = spawnSync("unshare", ["--pid", "--fork", "true"]).status === 0;

/** Runs the built command as a first process and signals it while it waits for a database that never answers. */
async function stopWhileWaiting(command: string, signal: NodeJS.Signals): Promise<{ code: number; stderr: string }> {
  await using scratch = await scratchFolder();
  const silent = createServer((socket) => socket.on("error", () => undefined)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const address = silent.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), {
    output: { parquet: undefined, postgres: { url: `postgres://nobody@127.0.0.1:${port}/none`, table: "t" } },
  });
  const program = [process.execPath, join(projectFolder, "bin/infer-batch.js"), command, spec];
  const child = spawn("unshare", ["--pid", "--fork", "--kill-child", ...program], {
    stdio: ["ignore", "ignore", "pipe"],
    timeout: 20_000,
    killSignal: "SIGKILL",
  });
  const stderr = text(child.stderr);
  const closed = once(child, "close") as Promise<[number]>;
  const sockets: Socket[] = [];
  silent.on("connection", (socket) => sockets.push(socket));
  await Promise.race([closed, until(() => sockets.length > 0)]);
  process.kill(await firstBelow(child.pid ?? 0), signal);
  const [code] = await closed;
  for (const socket of sockets) {
    socket.destroy();
  }
  silent.close();
  return { code, stderr: await stderr };
}

describe.skipIf(!mayUnshare)("the first process of a container", () => {
  test.each([
    { command: "status", signal: "SIGTERM", code: 143, said: "" },
    { command: "status", signal: "SIGINT", code: 130, said: "" },
    { command: "run", signal: "SIGTERM", code: 143, said: "stopping on SIGTERM: it took more than 5 s" },
  ] as const)(
    "`$command` as the first process of a container exits with $code on $signal",
    async ({ command, signal, code, said }) => {
      const ended = await stopWhileWaiting(command, signal);
      expect(ended.code).toBe(code);
      expect(said === "" ? ended.stderr : ended.stderr.split(";")[0]).toBe(said && `error: ${said}`);
    },
  );
});

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
