import type { Plan } from "#src/plan/plan.js";
import type { PostgresSink } from "#src/sink/postgres/sink.js";
import type { Database } from "./pg-database.js";
import { pgSink } from "./sinks.js";
import { stagedPlan } from "./staged-plans.js";

/** A plan with checks whose rows are published as they come, as with `on_fail: warn`. */
export function warningPlan(sink: PostgresSink): Plan {
  return { ...stagedPlan(sink.planTarget), staged: false };
}

interface OpenSink extends AsyncDisposable {
  readonly sink: PostgresSink;
  readonly warnings: string[];
}

/** Opens a sink with all that it warns of. */
export function sinkAt(url: string, mode: "append" | "replace" = "append"): OpenSink {
  const warnings: string[] = [];
  const timeouts = { connect: 60, statement: 60, lock: 1 };
  const sink = pgSink({ url, postgres: { timeouts, mode }, warn: (text) => void warnings.push(text) });
  return { sink, warnings, [Symbol.asyncDispose]: () => sink[Symbol.asyncDispose]() };
}

/** The tables with keys of runs. */
export async function keysIn(database: Database): Promise<string[]> {
  const tables = await database.query("SELECT relname FROM pg_class WHERE relname ~ '^profile_key_'");
  return tables.map(({ relname }) => `infer_batch.${String(relname)}`);
}
