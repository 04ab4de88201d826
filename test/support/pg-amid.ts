import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Database } from "./pg-database.js";
import { begun, carryOut, commitSpans, pgSink, type PgSinkOptions, planFor } from "./sinks.js";

/** Ways to write into a table, and the settings of each. */
export const modes = [
  ["append", { mode: "append" }],
  ["upsert", { mode: "upsert", key: ["id"] }],
  ["replace", { mode: "replace", key: ["id"], swap: "rename" }],
  ["replace by rows", { mode: "replace", key: ["id"], swap: "delete_insert" }],
] as const satisfies readonly (readonly [string, PgSinkOptions["postgres"]])[];

export const runOf = (rows: number): string => `job-${String(rows).padStart(12, "0")}`;

export async function wholeRun(database: Database, rows: number, more: PgSinkOptions["postgres"] = {}): Promise<void> {
  await using sink = pgSink({ url: database.url, postgres: { mode: "replace", key: ["id"], ...more } });
  await carryOut(sink, planFor(sink.planTarget, { rows, runId: runOf(rows) }));
}

/** Begins a run of 40 rows, commits its first span, runs `sql`, then carries the run to its end. */
export async function changeAmid(
  database: Database,
  postgresSpec: PgSinkOptions["postgres"],
  sql: string,
  url = database.url,
): Promise<void> {
  await using sink = pgSink({ url, postgres: postgresSpec ?? {} });
  const { stored, run } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
  await commitSpans(run, stored, (span) => span === 0);
  await database.query(sql);
  await commitSpans(run, stored);
  await run.finish();
}

export const count = async (database: Database): Promise<number> =>
  Number((await database.query("SELECT count(*)::int AS n FROM scores.predictions"))[0]?.["n"]);

const waitingSessions = async (database: Database): Promise<number> =>
  Number(
    (
      await database.query(
        "SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      )
    )[0]?.["n"],
  );

/** Returns once so many sessions of the database wait for a lock. Fails if `work` ends before that. */
export async function untilWaiting(
  database: Database,
  { sessions = 1, work }: { readonly sessions?: number; readonly work?: Promise<unknown> } = {},
): Promise<void> {
  const state = { ended: false };
  const end = (): void => {
    state.ended = true;
  };
  void work?.then(end, end);
  while ((await waitingSessions(database)) < sessions) {
    expect(state.ended, "ended without waiting").toBe(false);
    await sleep(5);
  }
}

export const plainTable = "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real)";
