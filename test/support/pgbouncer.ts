import { spawn, spawnSync } from "node:child_process";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "./pg-database.js";
import { freePort, unprivileged } from "./postgres-server.mjs";

export interface PgBouncer extends AsyncDisposable {
  /** The same database, through the pooler. */
  through(url: string): string;
}

/** Debian has it where only root looks for programs. */
export function findPgBouncer(): string | undefined {
  return ["pgbouncer", "/usr/sbin/pgbouncer"].find((program) => spawnSync(program, ["--version"]).status === 0);
}

/** A pooler before the server, in transaction mode: all its clients share `poolSize` sessions a database. */
export async function startPgBouncer(program: string, serverPort: number, poolSize: number): Promise<PgBouncer> {
  const identity = unprivileged();
  const folder = mkdtempSync(join(tmpdir(), "infer-batch-pgbouncer-"));
  const port = await freePort();
  const settings = join(folder, "pgbouncer.ini");
  const users = join(folder, "users.txt");
  writeFileSync(users, '"postgres" ""\n');
  writeFileSync(
    settings,
    `[databases]
* = host=127.0.0.1 port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = ${poolSize}
auth_type = trust
auth_file = ${users}
admin_users = postgres
`,
  );
  for (const path of identity.uid === undefined ? [] : [folder, settings, users]) {
    chownSync(path, identity.uid ?? 0, identity.gid ?? 0);
  }
  const child = spawn(program, ["-q", settings], { ...identity, cwd: "/", stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const exited = new Promise((done) => child.once("exit", done));
  const last = (): void => void child.kill("SIGKILL");
  process.on("exit", last);
  const through = (url: string): string => url.replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${port}`);
  await untilReady(through(`postgres://postgres@127.0.0.1:${serverPort}/postgres`), () =>
    child.exitCode === null ? undefined : said,
  );
  return {
    through,
    async [Symbol.asyncDispose]() {
      child.kill("SIGTERM");
      await exited;
      process.off("exit", last);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilReady(url: string, failure: () => string | undefined): Promise<void> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    const failed = failure();
    if (failed !== undefined || performance.now() > deadline) {
      throw new Error(`PgBouncer did not start: ${failed ?? "it does not answer"}`);
    }
    try {
      const client = await connect(url);
      await client.end();
      return;
    } catch {
      await sleep(20);
    }
  }
}
