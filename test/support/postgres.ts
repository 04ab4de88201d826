import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, describe } from "vitest";
import { connect, type Database, databaseOf, emptyDatabase } from "./pg-database.js";
import { findBinaries, type RunningServer, startServer } from "./postgres-server.mjs";

/** A real server, durable as by default. */
export interface PostgresServer extends RunningServer {
  /** An empty one, which others use when it is closed: making one takes far longer than emptying it. */
  createDatabase(): Promise<Database>;
  open(name: string): Promise<Database>;
}

function withDatabases(server: RunningServer): PostgresServer {
  const url = (database: string): string => server.url(database);
  let databases = 0;
  const free: string[] = [];
  const make = async (): Promise<string> => {
    databases += 1;
    const name = `test_${databases}`;
    const admin = await connect(url("postgres"));
    await admin.query(`CREATE DATABASE ${name}`);
    await admin.end();
    return name;
  };
  return {
    ...server,
    open: (name) => Promise.resolve(databaseOf(name, url(name))),
    async createDatabase() {
      const name = free.pop() ?? (await make());
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
  };
}

function whatIsMissing(found: ReturnType<typeof findBinaries>, tls: boolean): string | undefined {
  if ("missing" in found) {
    return `no Postgres: ${found.missing}`;
  }
  return tls && spawnSync("openssl", ["version"]).status !== 0 ? "no openssl to make a certificate with" : undefined;
}

interface ServerNeed {
  readonly flags?: readonly string[];
  readonly tls?: boolean;
  /** The tests kill it. */
  readonly own?: boolean;
}

/** The server of all test files of this process that need none of their own. The main process ends it at last. */
let shared: Promise<PostgresServer> | undefined;

async function shareServer(native: string): Promise<PostgresServer> {
  // A server writes up to 1 GB of its log before it uses that again, and lies in memory.
  shared ??= startServer(native, { flags: ["-c", "max_wal_size=128MB"] }).then(withDatabases);
  const server = await shared;
  return { ...server, kill: refuseKill, start: refuseKill, stop: () => leaveServer(server) };
}

function refuseKill(): Promise<never> {
  return Promise.reject(new Error("other test files use this server: usePostgres({ own: true })"));
}

/** What the tests of a file may have left in a server beside what their databases hold. */
const traces = `SELECT (SELECT count(*) FROM pg_roles WHERE oid >= 16384) + (SELECT count(*) FROM pg_db_role_setting)
  + (SELECT count(*) FROM pg_database WHERE datname !~ '^test_' AND oid >= 16384)
  + (SELECT count(*) FROM pg_database WHERE datname ~ '^test_' AND datacl IS NOT NULL) AS count`;

/** Keeps the shared server for the next file, unless there are traces of this one. */
async function leaveServer(server: PostgresServer): Promise<void> {
  const admin = await connect(server.url("postgres"));
  const { rows } = await admin.query<{ count: string }>(traces);
  await admin.end();
  if (rows[0]?.count !== "0") {
    shared = undefined;
    await server.stop();
  }
}

/** Starts or shares a server for the tests of this file. Without one they are skipped, and say why in their name. */
export function usePostgres({ flags = [], tls = false, own = false }: ServerNeed = {}): {
  readonly server: () => PostgresServer;
  readonly describe: (name: string, tests: () => void) => void;
} {
  const found = findBinaries();
  const missing = whatIsMissing(found, tls);
  if (missing !== undefined || "missing" in found) {
    console.warn(`SKIPPED, ${missing}`);
    return {
      server: () => {
        throw new Error(missing);
      },
      describe: (name, tests) => {
        describe.skip(`${name} (${missing})`, tests);
      },
    };
  }
  // Not before there is a test that runs: of a file that skips all of them, no hook would stop it again.
  let server: PostgresServer | undefined;
  beforeAll(async () => {
    const isOwn = own || tls || flags.length > 0;
    server = isOwn ? withDatabases(await startServer(found.native, { flags, tls })) : await shareServer(found.native);
  });
  afterAll(() => server?.stop());
  return {
    server() {
      if (server === undefined) {
        throw new Error("the server is started with the first test");
      }
      return server;
    },
    describe: (name, tests) => {
      describe(name, tests);
    },
  };
}
