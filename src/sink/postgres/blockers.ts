import type { Connections } from "./connections.js";

/** Checks for blockers in one lock timeout. */
const checksPerTimeout = 4;

/**
 * Ends silent sessions that block a transaction, while that waits for a lock. An attempt whose machine is gone can hold
 * one while the server waits for its next byte, and no timeout of the server ends that session. Only sessions of this
 * program and this role are ended, and only when they made no step between two checks. To end a session that is alive
 * does no harm: its attempt repeats the span, and finds it committed.
 */
export function watchBlockers(
  connections: Connections,
  { pid, lockSeconds, warn }: { pid: number; lockSeconds: number; warn: (message: string) => void },
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
