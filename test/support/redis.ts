import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@redis/client";
import { buildOnce, cacheFolder } from "./build-once.mjs";
import { ended } from "./line-program.js";
import { freePort } from "./s3-server.mjs";
import { until } from "./waiting.js";

const unpacked = cacheFolder("redis-debian");
/** The server is a link to a program of redis-tools. */
const packages = ["redis-server", "redis-tools", "liblzf1", "libjemalloc2", "liblua5.1-0", "lua-cjson", "lua-bitop"];

/** Why there is no server; undefined: there is one, of the system or unpacked from Debian's packages. */
export const missing = spawnSync("redis-server", ["--version"]).status === 0 ? undefined : unpackServer();
export const skipped = missing === undefined ? "" : ` (skipped: ${missing.split("\n")[0]})`;

function unpackServer(): string | undefined {
  return buildOnce(join(unpacked, "root"), (making) => {
    console.warn(`fetching Redis into ${unpacked}: once, 9 MB`);
    const get = (command: string): ReturnType<typeof spawnSync> =>
      spawnSync("apt-get", [command, "-qq", ...(command === "download" ? packages : [])], { cwd: making });
    if (get("download").status !== 0) {
      get("update");
      const { status, stderr, error } = get("download");
      if (status !== 0) {
        return `apt-get download failed: ${error?.message ?? String(stderr).slice(-300)}`;
      }
    }
    for (const file of readdirSync(making).filter((name) => name.endsWith(".deb"))) {
      if (spawnSync("dpkg", ["-x", file, "root"], { cwd: making }).status !== 0) {
        return `dpkg -x ${file} failed`;
      }
    }
    renameSync(join(making, "root"), join(unpacked, "root"));
    return undefined;
  });
}

const bin = join(unpacked, "root/usr/bin");
const libraries = join(unpacked, "root/usr/lib", `${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu`);
const env = {
  ...process.env,
  PATH: `${bin}:${process.env["PATH"] ?? ""}`,
  LD_LIBRARY_PATH: [libraries, process.env["LD_LIBRARY_PATH"]].filter(Boolean).join(":"),
};

/** A server of Redis that no one else uses. */
export interface RedisServer extends AsyncDisposable {
  readonly port: number;
  readonly url: string;
  readonly folder: string;
  ask(...command: string[]): Promise<unknown>;
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** Starts a server with more options; `port 0` is one without an unencrypted port. */
export async function startRedis(...options: readonly string[]): Promise<RedisServer> {
  const folder = mkdtempSync(join(tmpdir(), "infer-batch-redis-"));
  const port = await freePort();
  let server: ChildProcess | undefined;
  const last = (): void => void server?.kill("SIGKILL");
  process.on("exit", last);
  const ask: RedisServer["ask"] = async (...command) => {
    const client = createClient({ RESP: 2, socket: { port, host: "127.0.0.1", reconnectStrategy: false } });
    client.on("error", () => undefined);
    await client.connect();
    try {
      return await client.sendCommand(command);
    } finally {
      client.destroy();
    }
  };
  const start = async (): Promise<void> => {
    const args = ["--bind", "127.0.0.1", "--port", String(port), "--dir", folder, "--save", ""];
    let said = "";
    server = spawn("redis-server", [...args, ...options], { env, stdio: ["ignore", "pipe", "ignore"] });
    server.stdout?.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    await until(() => {
      if (server?.exitCode !== null) {
        throw new Error(`redis-server did not start: ${said}`);
      }
      return said.includes("Ready to accept connections");
    });
  };
  const kill = async (): Promise<void> => {
    await (server && ended(server));
  };
  await start();
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    folder,
    ask,
    start,
    kill,
    async [Symbol.asyncDispose]() {
      await kill();
      process.off("exit", last);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts three servers, and makes a cluster of them. */
export async function startCluster(): Promise<{ readonly servers: readonly RedisServer[] } & AsyncDisposable> {
  const servers = await Promise.all([1, 2, 3].map(() => startRedis("--cluster-enabled", "yes")));
  const places = servers.map(({ port }) => `127.0.0.1:${port}`);
  const made = spawnSync("redis-cli", ["--cluster", "create", ...places, "--cluster-yes"], { env, encoding: "utf8" });
  if (made.status !== 0) {
    throw new Error(`redis-cli failed: ${made.stdout}${made.stderr}`);
  }
  await until(async () =>
    (await Promise.all(servers.map((each) => each.ask("CLUSTER", "INFO")))).every((info) =>
      String(info).includes("cluster_state:ok"),
    ),
  );
  return {
    servers,
    async [Symbol.asyncDispose]() {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}
