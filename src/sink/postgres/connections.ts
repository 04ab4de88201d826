import type { Socket } from "node:net";
import { type ClientBase, DatabaseError, Pool, type PoolClient } from "pg";
import { from as copyFrom } from "pg-copy-streams";
import type { PostgresTimeouts } from "../../spec/output-spec.js";
import { JobError, messageOf } from "../../util/errors.js";
import type { ConnectionSettings } from "./connect.js";

export type Session = Pick<ClientBase, "query">;

/** A small pool of connections to one server. */
export interface Connections extends AsyncDisposable {
  /**
   * Runs `work` with a connection of the pool. If `work` fails, the connection is closed, and the server rolls back.
   * `silentSeconds`: the connection is closed after this time without data.
   */
  use<T>(work: (session: Session) => Promise<T>, options?: { readonly silentSeconds?: number | undefined }): Promise<T>;
}

/**
 * Whether the server refused the password (28P01), or there is none to send: a file with a password may be empty, or
 * away, while it is rewritten.
 */
function isPasswordRefused(error: unknown): boolean {
  return (
    (error instanceof DatabaseError && error.code === "28P01") || lacksPassword(error) || error instanceof JobError
  );
}

/** Whether `pg` reports that the server asks for a password and there is none. */
export function lacksPassword(error: unknown): boolean {
  return /SASL|password must be a string/i.test(messageOf(error));
}

/**
 * Thrown when the server refuses a password after it took one in this process. `mayChange`: the password is read again
 * for each connection, and its file may be written later than the role was changed.
 */
export class PasswordRefused extends Error {
  override readonly name = "PasswordRefused";
  readonly mayChange: boolean;

  constructor(mayChange: boolean, options: { readonly cause: unknown }) {
    const { cause } = options;
    super(
      cause instanceof JobError ? cause.message : "the server no longer takes the password that it took before",
      options,
    );
    this.mayChange = mayChange;
  }
}

/** A connection for each span under way, one to check for blockers, and one spare. */
const connectionLimit = 4;
/** Seconds added to the server's timeouts, so that its report of a timeout can still arrive. */
const graceSeconds = 5;

export function openConnections(settings: ConnectionSettings, timeouts: PostgresTimeouts): Connections {
  const { host, port, user, database, password, ssl } = settings;
  const pool = new Pool({
    host,
    port,
    user,
    database,
    ssl,
    // The type asks for a text; where there is none, the server reports it.
    password: password as () => Promise<string>,
    application_name: "infer-batch",
    max: connectionLimit,
    connectionTimeoutMillis: timeouts.connect * 1000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    allowExitOnIdle: true,
  });
  // The next use notices a connection that has died; an unhandled error event would end the process.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => {
    client.on("error", () => undefined);
  });
  const connect = connecting(pool, settings);
  return {
    async use(work, { silentSeconds = timeouts.statement } = {}) {
      const client = await connect();
      const watch = watchSilence(client, silentSeconds + graceSeconds);
      let failed = true;
      try {
        const result = await work(client);
        failed = false;
        return result;
      } finally {
        watch.stop();
        client.release(failed);
      }
    },
    async [Symbol.asyncDispose]() {
      await pool.end();
    },
  };
}

/** Connects as the pool does, and once more where the server refuses a password that may have been read too early. */
function connecting(
  pool: Pool,
  { passwordMayChange }: Pick<ConnectionSettings, "passwordMayChange">,
): () => Promise<PoolClient> {
  let wasTaken = false;
  return async () => {
    try {
      const client = await pool.connect();
      wasTaken = true;
      return client;
    } catch (error) {
      if (!isPasswordRefused(error)) {
        throw error;
      }
      if (wasTaken) {
        throw new PasswordRefused(passwordMayChange, { cause: error });
      }
      return await pool.connect();
    }
  };
}

/**
 * Closes a connection that is silent for too long: neither TCP nor the server's timeouts notice a peer that takes data
 * and never answers.
 */
function watchSilence(client: PoolClient, seconds: number): { stop(): void } {
  const socket = (client as PoolClient & { readonly connection: { readonly stream: Socket } }).connection.stream;
  const onTimeout = (): void => {
    socket.destroy(Object.assign(new Error(`the server was silent for ${seconds} seconds`), { code: "ETIMEDOUT" }));
  };
  socket.setTimeout(seconds * 1000, onTimeout);
  return {
    stop() {
      socket.setTimeout(0);
      socket.off("timeout", onTimeout);
    },
  };
}

/**
 * Runs a `COPY … FROM STDIN` over encoded chunks, with back-pressure. Returns the number of rows that the server took.
 */
export async function copyIn(session: Session, sql: string, chunks: Iterable<Uint8Array>): Promise<number> {
  const stream = session.query(copyFrom(sql));
  return await new Promise((resolve, reject) => {
    const iterator = chunks[Symbol.iterator]();
    const push = (): void => {
      try {
        while (!stream.destroyed) {
          const next = iterator.next();
          if (next.done === true) {
            stream.end();
            return;
          }
          if (!stream.write(next.value)) {
            stream.once("drain", push);
            return;
          }
        }
      } catch (error) {
        stream.destroy();
        reject(error);
      } finally {
        if (stream.destroyed) {
          iterator.return?.();
        }
      }
    };
    stream.on("error", (error: Error) => {
      // The stream forgets its connection when this returns: the data that it still holds must not be sent.
      stream.destroy();
      reject(error);
    });
    stream.once("finish", () => {
      resolve(stream.rowCount);
    });
    push();
  });
}

/** The server answered COMMIT with something else: the transaction had failed before, and was rolled back. */
class NotCommitted extends Error {
  readonly code = "ECONNABORTED"; // as for any lost transaction: try again
}

const lockTimeout = "55P03";

export interface TransactionTools {
  readonly connections: Connections;
  readonly timeouts: PostgresTimeouts;
  readonly warn: (message: string) => void;
}

/**
 * Runs `work` in a transaction of its own. When it throws, the connection is closed, and the server rolls back. All
 * settings are the transaction's: behind a pooler, the next one may use another session. `last`: the error of the previous try; when that was a lock timeout,
 * sessions that hold locks are watched this time.
 */
export async function transact<T>(
  { connections, timeouts, warn }: TransactionTools,
  work: (session: Session) => Promise<T>,
  { last, silentSeconds }: { readonly last?: unknown; readonly silentSeconds?: number | undefined } = {},
): Promise<T> {
  let watch: { stop(): Promise<void> } | undefined;
  try {
    return await connections.use(
      async (session) => {
        await session.query(begin(timeouts));
        if (last instanceof DatabaseError && last.code === lockTimeout) {
          const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
          watch = watchBlockers(connections, rows[0]?.pid ?? 0, timeouts.lock, warn);
        }
        const result = await work(session);
        const { command } = await session.query("COMMIT");
        if (command !== "COMMIT") {
          throw new NotCommitted(`the server answered COMMIT with ${command}`);
        }
        return result;
      },
      { silentSeconds },
    );
  } finally {
    await watch?.stop();
  }
}

function begin({ statement, lock }: PostgresTimeouts): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL search_path = pg_catalog, pg_temp;
    SET LOCAL statement_timeout = '${statement}s';
    SET LOCAL lock_timeout = '${lock}s';
    SET LOCAL idle_in_transaction_session_timeout = '${statement}s';
    SET LOCAL application_name = 'infer-batch';
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`;
}

/** Checks for blockers in one lock timeout. */
const checksPerTimeout = 4;

/**
 * Ends silent sessions that block a transaction, while that waits for a lock. An attempt whose machine is gone can hold
 * one while the server waits for its next byte, and no timeout of the server ends that session. Only sessions of this
 * program and this role are ended, and only when they made no step between two checks. To end a session that is alive
 * does no harm: its attempt repeats the span, and finds it committed.
 */
function watchBlockers(
  connections: Connections,
  pid: number,
  lockSeconds: number,
  warn: (message: string) => void,
): { stop(): Promise<void> } {
  let before = new Map<number, string>();
  let checking: Promise<void> = Promise.resolve();
  const check = async (): Promise<void> => {
    const { rows } = await connections.use((session) =>
      session.query<{ pid: number; step: string }>({ text: silentBlockers, values: [pid] }),
    );
    for (const row of rows) {
      if (before.get(row.pid) === row.step) {
        await connections.use((session) =>
          session.query({ text: "SELECT pg_catalog.pg_terminate_backend($1)", values: [row.pid] }),
        );
        warn(`ended session ${row.pid}, an attempt that holds a lock and has fallen silent`);
      }
    }
    before = new Map(rows.map((row) => [row.pid, row.step]));
  };
  const timer = setInterval(
    () => {
      // A failed check is ignored: the lock's timeout ends the wait.
      checking = checking.then(check).catch(() => undefined);
    },
    (lockSeconds * 1000) / checksPerTimeout,
  );
  return {
    async stop() {
      clearInterval(timer);
      await checking;
    },
  };
}

/** Sessions that wait for their client, and how far they have come. */
const silentBlockers = `
  SELECT a.pid, concat_ws(' ', a.backend_start, a.xact_start, a.state_change, a.state, c.bytes_processed) AS step
  FROM unnest(pg_catalog.pg_blocking_pids($1)) AS b (pid)
  JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
  LEFT JOIN pg_catalog.pg_stat_progress_copy c ON c.pid = a.pid
  WHERE a.usename = current_user AND a.application_name = 'infer-batch' AND a.wait_event_type = 'Client'`;
