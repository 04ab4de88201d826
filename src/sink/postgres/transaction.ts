import type { PostgresTimeouts } from "../../spec/postgres-spec.js";
import type { Session } from "./connections.js";

/** COMMIT was answered by something else: the transaction had failed before, and nothing of it stands. */
class NotCommitted extends Error {
  readonly code = "ECONNABORTED"; // as with any transaction that was lost: try again
}

/**
 * Does `work` in one transaction. Everything is set for the transaction only: behind a pooler, the next one may
 * be on another session. When it throws, the connection must be closed; the server then rolls back.
 */
export async function inTransaction<T>(
  session: Session,
  timeouts: PostgresTimeouts,
  work: () => Promise<T>,
): Promise<T> {
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
