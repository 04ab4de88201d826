import type { Socket } from "node:net";
import { pipeline } from "node:stream/promises";
import { type ClientBase, DatabaseError, Pool, type PoolClient } from "pg";
import { from as copyFrom } from "pg-copy-streams";
import type { PostgresTimeouts } from "../../job/jobfile/output-spec.js";
import { type ErrorCode, JobError, errnoOf, isCertificateError, messageOf } from "../../base/errors.js";
import type { ConnectionSettings } from "./connect.js";
import { type RetryRules, type RetryTools, type Work, connectionErrors, tryAgain } from "../../base/retry.js";

export type Session = Pick<ClientBase, "query">;

/** A small pool of connections to one server. */
export interface Connections extends AsyncDisposable {
  /**
   * Runs `work` with a connection of the pool. If `work` fails, the connection is closed, and the server rolls back.
   * `silentSeconds`: the connection is closed after this time without data.
   */
  use<T>(work: (session: Session) => Promise<T>, options?: { readonly silentSeconds?: number | undefined }): Promise<T>;
}

/** Also where there is none to send: a file with a password may be empty, or away, while it is rewritten. */
function isPasswordRefused(error: unknown): boolean {
  return (
    (error instanceof DatabaseError && error.code === "28P01") || lacksPassword(error) || error instanceof JobError
  );
}

function lacksPassword(error: unknown): boolean {
  return /SASL|password must be a string/i.test(messageOf(error));
}

/**
 * Thrown when the server refuses a password after it took one in this process. `mayChange`: the password is read again
 * for each connection, and its file may be written later than the role was changed.
 */
class PasswordRefused extends Error {
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

/**
 * Runs a `COPY … FROM STDIN` over encoded chunks, with back-pressure. Returns the number of rows that the server took.
 */
export async function copyIn(session: Session, sql: string, chunks: Iterable<Uint8Array>): Promise<number> {
  const stream = session.query(copyFrom(sql));
  // At once: the stream forgets its connection when this returns, and the data that it still holds must not be sent.
  stream.on("error", () => stream.destroy());
  await pipeline(chunks, stream);
  return stream.rowCount;
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

function begin(timeouts: PostgresTimeouts): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL search_path = pg_catalog, pg_temp;
    SET LOCAL statement_timeout = '${timeouts.statement}s';
    SET LOCAL lock_timeout = '${timeouts.lock}s';
    SET LOCAL idle_in_transaction_session_timeout = '${timeouts.statement}s';
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

type Failure =
  | { readonly kind: "transient"; readonly found: string }
  | { readonly kind: "permanent"; readonly code: ErrorCode; readonly found: string; readonly hint?: string }
  | { readonly kind: "bug" };

/** Messages of `pg` for a lost connection, which have no code. */
const lostConnection =
  /^(Connection terminated|timeout expired|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Connection ended)/;

/**
 * SQLSTATEs, or their classes, of transient errors: of the connection, of the server and its resources, and of a
 * transaction or session in a wrong state. Unknown states count as permanent: they come from a trigger, a limit or a
 * damaged table, and each attempt would retry them for `retry.max_seconds`.
 * https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const transientStates = /^(08|25|26|40|53|58|72|HV|XX000|55P03|55006|57014|57P01|57P02|57P03|57P05)/;

interface Known {
  readonly states: RegExp;
  readonly code: ErrorCode;
  readonly hint: string;
}

const permanentStates: readonly Known[] = [
  {
    states: /^28/,
    code: "PERMISSION",
    hint: "check user and password: output.postgres.url and password, PGPASSWORD or .pgpass",
  },
  { states: /^3D000|^57P04/, code: "PERMISSION", hint: "check the database's name in the URL" },
  { states: /^42501/, code: "PERMISSION", hint: "docs/privileges.md lists what a role needs for each mode" },
  {
    states: /^23505/,
    code: "DUPLICATE_KEY",
    hint: "mode: upsert updates rows whose key is there already; or correct the input or the table; committed spans are kept",
  },
  {
    states: /^(42P01|3F000)/,
    code: "OUTPUT_DAMAGED",
    hint: "a table of the target, of output.postgres.control_schema, or one that a trigger or rule of the target names, was removed; restore it from a backup. Without one, drop the control schema with all its tables, and run the same command again, which scores all rows. With mode append, rows that were written may be there all the same: look for them before rows are scored again",
  },
  {
    states: /^22P05/,
    code: "OUTPUT_REFUSED",
    hint: "the database's encoding cannot hold a character of a row, a param, a name or a file's path; use a database with encoding UTF8",
  },
  {
    states: /^0A/,
    code: "OUTPUT_MISMATCH",
    hint: "Postgres does not support this for the table: a trigger, a rule or row-level security of it may be the reason",
  },
  // 22P03, 08P01: a COPY whose bytes do not fit a column's type.
  {
    states: /^(42|3F|2B|22P03|08P01)/,
    code: "OUTPUT_MISMATCH",
    hint: "the table has changed since it was checked",
  },
];
const refused: Omit<Known, "states"> = {
  code: "OUTPUT_REFUSED",
  hint: "correct the input or the table; committed spans are kept",
};

const undefinedTable = "42P01";

/** Whether a statement failed because a table that it names does not exist. */
export function isMissingTable(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === undefinedTable;
}

export function classifyFailure(error: unknown): Failure {
  if (error instanceof PasswordRefused) {
    const hint = "run the same command again: it takes the password anew, and committed spans are kept";
    return error.mayChange
      ? { kind: "transient", found: error.message }
      : { kind: "permanent", code: "DATABASE", found: error.message, hint };
  }
  if (error instanceof DatabaseError) {
    return ofServer(error);
  }
  // A name with several addresses: all of them failed.
  if (error instanceof AggregateError && error.errors.length > 0) {
    return classifyFailure(error.errors[0]);
  }
  return ofConnection(error);
}

function ofServer(error: DatabaseError): Failure {
  const state = error.code ?? "";
  const more = [error.detail, copyPlace(error)].filter((text) => text !== undefined).join("; ");
  const found = `${error.message}${more === "" ? "" : ` (${more})`} [${state}]`;
  if (transientStates.test(state) && !isShortField(error)) {
    const hint = /statement timeout/.test(error.message) ? "; output.postgres.timeouts.statement sets it" : "";
    return { kind: "transient", found: `${found}${hint}` };
  }
  const { code, hint } = permanentStates.find(({ states }) => states.test(state)) ?? refused;
  return { kind: "permanent", code, found, hint };
}

function ofConnection(error: unknown): Failure {
  const errno = errnoOf(error) ?? "";
  const message = messageOf(error);
  if (isCertificateError(errno)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: `the server's certificate is not trusted: ${message} (${errno})`,
      hint: "sslrootcert in the URL, or PGSSLROOTCERT, names the authority's certificate; output.postgres.tls: require does not check it",
    };
  }
  if (/does not support SSL/.test(message)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: "the server does not speak TLS",
      hint: "switch TLS on in the server, or write output.postgres.tls: disable in the spec",
    };
  }
  if (lacksPassword(error)) {
    return {
      kind: "permanent",
      code: "PERMISSION",
      found: "the server asks for a password, and there is none",
      hint: "set it by output.postgres.url or password, PGPASSWORD or .pgpass",
    };
  }
  return connectionErrors.has(errno) || lostConnection.test(message)
    ? { kind: "transient", found: message }
    : { kind: "bug" };
}

/** The row of a span that failed, as the server reports it: "COPY predictions, line 7, column id". */
function copyPlace({ where }: DatabaseError): string | undefined {
  return where?.split("\n").find((line) => line.startsWith("COPY "));
}

/** The server reports a value that is shorter than its column's type as a protocol violation. */
function isShortField(error: DatabaseError): boolean {
  return error.code === "08P01" && copyPlace(error) !== undefined;
}

/** Messages of the server hold names and values, never credentials. */
function databaseError(doing: string, error: unknown): unknown {
  if (error instanceof JobError) {
    return error;
  }
  const failure = classifyFailure(error);
  switch (failure.kind) {
    case "bug":
      return error;
    case "transient":
      return new JobError("DATABASE", `${doing}: ${failure.found}`, {
        hint: "run the same command again; committed spans are kept",
        cause: error,
      });
    case "permanent":
    default:
      return new JobError(failure.code, `${doing}: ${failure.found}`, {
        cause: error,
        ...(failure.hint === undefined ? {} : { hint: failure.hint }),
      });
  }
}

/**
 * Retries `work` while it fails with transient errors of the database. @throws JobError DATABASE when the time is up:
 * see `tryAgain`
 */
export async function retrying<T>(doing: string, tools: RetryTools, work: Work<T>): Promise<T> {
  const rules: RetryRules = {
    judge(error) {
      const failure = error instanceof JobError ? undefined : classifyFailure(error);
      return failure?.kind === "transient"
        ? { kind: "again", found: failure.found }
        : { kind: "end", error: databaseError(doing, error) };
    },
    code: "DATABASE",
    hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
  };
  return await tryAgain(doing, tools, rules, work);
}

/** Waits for a lock by name. The lock belongs to the transaction: behind a pooler, a session may be shared. */
export async function lock(
  session: Session,
  name: string,
  { shared = false }: { readonly shared?: boolean } = {},
): Promise<void> {
  await session.query({
    text: `SELECT pg_advisory_xact_lock${shared ? "_shared" : ""}(hashtextextended($1, 0))`,
    values: [`infer-batch ${name}`],
  });
}
