import { DatabaseError } from "pg";
import type { PostgresTimeouts } from "../../spec/postgres-spec.js";
import { watchBlockers } from "./blockers.js";
import type { Connections, Session } from "./connections.js";

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
 * Runs `work` in a transaction of its own. `last`: the error of the previous try; when that was a lock timeout,
 * sessions that hold locks are watched this time.
 */
export async function transact<T>(
  { connections, timeouts, warn }: TransactionTools,
  work: (session: Session) => Promise<T>,
  { last, silentSeconds }: { readonly last?: unknown; readonly silentSeconds?: number } = {},
): Promise<T> {
  let watch: { stop(): Promise<void> } | undefined;
  try {
    return await connections.use(
      (session) =>
        inTransaction(session, timeouts, async () => {
          if (last instanceof DatabaseError && last.code === lockTimeout) {
            const { rows } = await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
            watch = watchBlockers(connections, { pid: rows[0]?.pid ?? 0, lockSeconds: timeouts.lock, warn });
          }
          return await work(session);
        }),
      silentSeconds === undefined ? {} : { silentSeconds },
    );
  } finally {
    await watch?.stop();
  }
}

/**
 * Runs `work` in one transaction. All settings are the transaction's: behind a pooler, the next one may use another
 * session. When it throws, the connection must be closed; the server then rolls back.
 */
async function inTransaction<T>(session: Session, timeouts: PostgresTimeouts, work: () => Promise<T>): Promise<T> {
  await session.query(begin(timeouts));
  const result = await work();
  const { command } = await session.query("COMMIT");
  if (command !== "COMMIT") {
    throw new NotCommitted(`the server answered COMMIT with ${command}`);
  }
  return result;
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
