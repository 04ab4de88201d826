import type { Socket } from "node:net";
import { type ClientBase, DatabaseError, Pool, type PoolClient } from "pg";
import { from as copyFrom } from "pg-copy-streams";
import type { PostgresTimeouts } from "../../spec/postgres-spec.js";
import { messageOf } from "../../util/errors.js";
import type { ConnectionSettings } from "./connect.js";

export type Session = Pick<ClientBase, "query">;

/** Connections to one server; at most a few. */
export interface Connections extends AsyncDisposable {
  /**
   * Lends a connection to `work`. One that `work` failed on is closed, whatever state it is in: the server then
   * rolls back. `silentSeconds`: how long nothing may come or go before the connection is given up.
   */
  use<T>(work: (session: Session) => Promise<T>, options?: { readonly silentSeconds?: number }): Promise<T>;
}

/** 28P01, or there is none to send: .pgpass may be empty while it is written anew. */
function isPasswordRefused(error: unknown): boolean {
  return (error instanceof DatabaseError && error.code === "28P01") || lacksPassword(error);
}

/** As `pg` says that the server asks for a password and none is there. */
export function lacksPassword(error: unknown): boolean {
  return /SASL|password must be a string/i.test(messageOf(error));
}

/**
 * The server refuses a password in mid-run, after it took one. `mayChange`: it is read again for each connection, and
 * whoever rotates it may write the file later than the role.
 */
export class PasswordRefused extends Error {
  override readonly name = "PasswordRefused";
  readonly mayChange: boolean;

  constructor(mayChange: boolean, options: { readonly cause: unknown }) {
    super("the server does not take the password any more that it took before", options);
    this.mayChange = mayChange;
  }
}

/** One for each span under way, one to look at those who block them, one to spare. */
const connectionLimit = 4;
/** A statement that the server ends at its timeout must be heard to end. */
const graceSeconds = 5;

export function openConnections(settings: ConnectionSettings, timeouts: PostgresTimeouts): Connections {
  const { host, port, user, database, password, ssl } = settings;
  const pool = new Pool({
    host,
    port,
    user,
    database,
    ssl,
    // Typed as giving a text; that there is none is for the server to say.
    password: password as () => Promise<string>,
    application_name: "infer-batch",
    max: connectionLimit,
    connectionTimeoutMillis: timeouts.connect * 1000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    allowExitOnIdle: true,
  });
  // A connection that dies between two uses is the next user's to notice; unheard events would end the process.
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

/** Neither TCP nor the server's timeouts notice a peer that takes data and never answers. */
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

/** Runs a `COPY … FROM STDIN` over chunks that lie ready, no faster than the server takes them; the rows it counted. */
export async function copyIn(session: Session, sql: string, chunks: readonly Uint8Array[]): Promise<number> {
  const stream = session.query(copyFrom(sql));
  return await new Promise((resolve, reject) => {
    let next = 0;
    const push = (): void => {
      while (next < chunks.length && !stream.destroyed) {
        const chunk = chunks[next];
        next += 1;
        if (!stream.write(chunk)) {
          stream.once("drain", push);
          return;
        }
      }
      if (!stream.destroyed) {
        stream.end();
      }
    };
    stream.on("error", (error: Error) => {
      // The stream forgets its connection when this returns: what it still holds must not be sent any more.
      stream.destroy();
      reject(error);
    });
    stream.once("finish", () => {
      resolve(stream.rowCount);
    });
    push();
  });
}
