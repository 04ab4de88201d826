import { describe, expect, test } from "vitest";
import { expectEnd, runCli } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { connect } from "../support/pg-database.js";
import { expectFinishedPg, type Mode, pgJob } from "../support/pg-crash.js";
import { findPgBouncer, startPgBouncer } from "../support/pgbouncer.js";
import { usePostgres } from "../support/postgres.js";

const program = findPgBouncer();
if (program === undefined) {
  console.warn("SKIPPED, no PgBouncer: install it (Debian: apt-get install pgbouncer)");
}
const postgres = usePostgres();
/** Fewer than the connections that one attempt has. */
const sessions = 2;
const names = program === undefined ? "(no pgbouncer on this machine)" : "";

/** State of a session that a pooler would hand on to its next client. */
const sessionState = `
  SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS lock,
    current_setting('statement_timeout') AS statement, current_setting('idle_in_transaction_session_timeout') AS idle,
    (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
    (SELECT count(*)::int FROM pg_prepared_statements) AS statements,
    (SELECT count(*)::int FROM pg_class WHERE relpersistence = 't') AS tables`;
const untouched = { path: '"$user", public', lock: "0", statement: "0", idle: "0", locks: 0, statements: 0, tables: 0 };

(program === undefined ? describe.skip : postgres.describe)(`behind PgBouncer in transaction mode ${names}`, () => {
  const cases = (["append", "upsert", "replace"] as const).flatMap((mode) => [
    { mode, what: "without checks", checks: undefined },
    { mode, what: "staged", checks: {} },
  ]);

  test.each<{ mode: Mode; what: string; checks: object | undefined }>(cases)(
    "two attempts on one run share its sessions, score every row once, and leave nothing in them: $mode, $what",
    async ({ mode, checks }) => {
      await using scratch = await scratchFolder();
      await using database = await postgres.server().createDatabase();
      await using pooler = await startPgBouncer(program ?? "", postgres.server().port, sessions);
      const url = pooler.through(database.url);
      const job = await pgJob(scratch.path, database, mode, { url, checks });
      const results = await Promise.all([1, 2].map(() => runCli(["run", job.spec, "--no-progress"])));
      expect(results.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual([0, 0]);
      await expectFinishedPg(job);
      if (mode === "replace") {
        expect((await expectEnd(runCli(["status", job.spec]), 0)).stdout).toContain("published");
        await expectEnd(runCli(["rollback", job.spec]), 0);
        expect(await database.query("SELECT id FROM scores.predictions")).toEqual([{ id: "-1" }]);
      }
      // Both sessions at once, each held by a transaction.
      const others = await Promise.all(Array.from({ length: sessions }, () => connect(url)));
      for (const other of others) {
        await other.query("BEGIN");
      }
      const left = await Promise.all(others.map(async (other) => (await other.query(sessionState)).rows[0] as unknown));
      expect(left).toEqual(left.map(() => untouched));
      await Promise.all(others.map((other) => other.end()));
      // It was a pooler that they talked to, and it did share.
      const admin = await connect(url.replace(/\/[^/]*$/, "/pgbouncer"));
      const pools: unknown = (await admin.query("SHOW POOLS")).rows;
      await admin.end();
      expect(pools).toContainEqual(expect.objectContaining({ database: database.name, pool_mode: "transaction" }));
    },
  );
});
