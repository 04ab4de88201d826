import type { Connections } from "./connections.js";

/** How often those who block are looked at, in shares of the lock timeout. */
const looksPerTimeout = 4;

/**
 * While a transaction waits for a lock: ends those that hold it and have fallen silent, such as an attempt whose
 * machine is gone while the server still waits for its next byte; no timeout of the server ends that one. Only
 * sessions of this program and this role are touched, and only when they made no step between two looks. Ending
 * one that lives does no harm: it does its span again, and finds it committed.
 */
export function watchBlockers(
  connections: Connections,
  { pid, lockSeconds, warn }: { pid: number; lockSeconds: number; warn: (message: string) => void },
): { stop(): Promise<void> } {
  let before = new Map<number, string>();
  let looking: Promise<void> = Promise.resolve();
  const look = async (): Promise<void> => {
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
      // A look that fails is not worth failing for: the lock's timeout ends the wait.
      looking = looking.then(look).catch(() => undefined);
    },
    (lockSeconds * 1000) / looksPerTimeout,
  );
  return {
    async stop() {
      clearInterval(timer);
      await looking;
    },
  };
}

/** Those that wait for their client, and how far they have come. */
const silentBlockers = `
  SELECT a.pid, concat_ws(' ', a.backend_start, a.xact_start, a.state_change, a.state, c.bytes_processed) AS step
  FROM unnest(pg_catalog.pg_blocking_pids($1)) AS b (pid)
  JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
  LEFT JOIN pg_catalog.pg_stat_progress_copy c ON c.pid = a.pid
  WHERE a.usename = current_user AND a.application_name = 'infer-batch' AND a.wait_event_type = 'Client'`;
