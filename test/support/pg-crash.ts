import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { expect } from "vitest";
import { type CliOptions, type CliResult, projectFolder, runCli } from "./cli.js";
import type { Fixture } from "./job.js";
import { tableFaults, writePgSpec } from "./pg-job.js";
import type { Database } from "./pg-database.js";
import { torture } from "./torture.js";
import { fixtureNamed } from "./world.js";

const preload = pathToFileURL(join(projectFolder, "test/crash/pg-preload.mjs")).href;

/** Runs the built command behind test/crash/pg-preload.mjs, which says what `env` may hold. */
export async function runWatchedPg(
  spec: string,
  env: Record<string, string>,
  {
    command = "run",
    args = [],
    ...options
  }: CliOptions & {
    readonly command?: "run" | "approve" | "discard" | "prune" | "erase";
    readonly args?: readonly string[];
  } = {},
): Promise<CliResult> {
  const shown = command === "run" ? ["--no-progress", "--log-level", "debug"] : [];
  return await runCli([command, spec, ...shown, ...args], { ...options, node: [`--import=${preload}`], env });
}

/** Every moment in torture, else one of each kind. `ofEnd`: only in the rows and at the end, where modes differ. */
export function killsOf(trace: readonly string[], { ofEnd = false } = {}): string[] {
  if (torture) {
    return trace.flatMap(momentsOf);
  }
  const few = fewKillsOf(trace);
  return ofEnd ? [few[0] ?? "", ...few.slice(-6)] : few;
}

function momentsOf(call: string): string[] {
  if (call.startsWith("COPY")) {
    return [`before ${call}`, `torn ${call}`, `after ${call}`];
  }
  return call.startsWith("COMMIT") ? [`before ${call}`, `sent ${call}`, `after ${call}`] : [`after ${call}`];
}

/**
 * One moment of each kind: in a COPY, at the end of each transaction that wrote, while its COMMIT is on its way, and
 * when all is done. A transaction that was killed at any other moment is rolled back, as before its COMMIT.
 */
function fewKillsOf(trace: readonly string[]): string[] {
  const commits: string[] = [];
  let writes = false;
  for (const call of trace) {
    if (call.startsWith("COMMIT")) {
      commits.push(...(writes ? [call] : []));
      writes = false;
    } else {
      writes ||= !/^(SELECT|BEGIN|WITH|SET)/.test(call);
    }
  }
  const copy = trace.find((call) => /^COPY .* #2$/.test(call)) ?? "";
  return [
    `torn ${copy}`,
    ...commits.flatMap((call) => [`before ${call}`, `sent ${call}`]),
    `after ${commits.at(-1) ?? ""}`,
  ];
}

export type Mode = "append" | "upsert" | "replace";

/** A row that was there before the run, which `replace` takes away and the others leave. */
const oldRow =
  "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real); INSERT INTO scores.predictions VALUES (-1, 0)";

export interface PgJob {
  readonly fixture: Fixture;
  readonly spec: string;
  readonly database: Database;
  readonly mode: Mode;
}

/** 442 rows of two shards in 3 spans, into a table that holds a row. `table`: how it is made. */
export async function pgJob(
  folder: string,
  database: Database,
  mode: Mode,
  {
    url = database.url,
    table = oldRow,
    postgres = {},
    output = {},
    ...more
  }: { url?: string; table?: string; postgres?: object; output?: object; [key: string]: unknown } = {},
): Promise<PgJob> {
  const fixture = fixtureNamed("diabetes-mlp");
  await database.query(table);
  const key = mode === "append" ? [] : ["id"];
  const spec = await writePgSpec(
    folder,
    fixture,
    { url },
    {
      commit_rows: 160,
      retry: { max_seconds: 60 },
      ...more,
      output: { ...output, postgres: { mode, key, ...postgres } },
    },
  );
  return { fixture, spec, database, mode };
}

/** It never takes that long, unless somebody is stuck. */
const settlingMs = 30_000;

/** Waits while the server may still be at work for a client that was killed: rows and control rows are read one after the other. */
async function settled(database: Database): Promise<void> {
  for (const start = performance.now(); performance.now() - start < settlingMs; await sleep(5)) {
    const busy = await database.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
         AND backend_type = 'client backend' AND state <> 'idle'`,
    );
    if (busy.length === 0) {
      return;
    }
  }
}

/** What is wrong in the database of a run that may have been killed at any moment. */
export async function faultsInDatabase({ database, fixture, mode }: PgJob): Promise<string[]> {
  const faults: string[] = [];
  await settled(database);
  const [there] = await database.query(
    "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions",
  );
  const control = await database.query("SELECT to_regclass('infer_batch.spans') IS NOT NULL AS there");
  const [due] =
    control[0]?.["there"] === true
      ? await database.query(
          "SELECT coalesce(sum(rows), 0)::int AS n, (SELECT count(*)::int FROM infer_batch.finishes) AS finished FROM infer_batch.spans",
        )
      : [{ n: 0, finished: 0 }];
  // One row was there before.
  const expected = mode === "replace" ? (due?.["finished"] === 1 ? fixture.rows : 1) : Number(due?.["n"]) + 1;
  if (there?.["n"] !== expected || there["ids"] !== expected) {
    faults.push(`${String(there?.["n"])} rows and ${String(there?.["ids"])} ids, expected ${expected}`);
  }
  return faults;
}

/** The end of it all: every row once, as predicted; control table and data agree; nothing is left over. */
export async function expectFinishedPg(job: PgJob): Promise<void> {
  const { database, fixture, mode } = job;
  expect(await faultsInDatabase(job)).toEqual([]);
  if (mode !== "replace") {
    await database.query("DELETE FROM scores.predictions WHERE id = -1");
  }
  expect(await tableFaults(database, fixture)).toEqual([]);
  expect(await database.query("SELECT status, spans_committed, rows_committed FROM infer_batch.progress")).toEqual([
    { status: "complete", spans_committed: "3", rows_committed: String(fixture.rows) },
  ]);
  expect(await leftTables(database)).toEqual([]);
}

/** Tables that only unfinished runs have. */
export async function leftTables(database: Database): Promise<string[]> {
  const left = await database.query(
    "SELECT tablename FROM pg_tables WHERE tablename LIKE '%staging%' OR tablename LIKE 'keys%'",
  );
  return left.map(({ tablename }) => String(tablename));
}
