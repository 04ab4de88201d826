import { compareTargets } from "../../plan/compare.js";
import type { Plan, PlanTarget } from "../../plan/plan.js";
import { type PostgresMode, type PostgresOutputSpec, splitTable } from "../../spec/postgres-spec.js";
import { JobError } from "../../util/errors.js";
import { z } from "../../util/zod.js";
import { showTable } from "./names.js";

/** What a plan pins of a table in Postgres. */
export interface PostgresTarget extends PlanTarget {
  readonly kind: "postgres";
  /** `host:port/database`: for people. A server may move while a run is unfinished. */
  readonly server: string;
  /** `schema.table` */
  readonly table: string;
  readonly mode: PostgresMode;
  readonly key: readonly string[];
  /** "fail" in other modes than `upsert`, where it has no effect. */
  readonly onDuplicate: "fail" | "last";
}

const schema = z.strictObject({
  kind: z.literal("postgres"),
  server: z.string(),
  table: z.string(),
  mode: z.enum(["append", "upsert", "replace"]),
  key: z.array(z.string()),
  onDuplicate: z.enum(["fail", "last"]),
}) satisfies z.ZodType<PostgresTarget>;

/** The target that a spec names. */
export function targetOf(
  { table, mode, key, on_duplicate: asked }: PostgresOutputSpec,
  { server }: { readonly server: string },
): PostgresTarget {
  const onDuplicate = mode === "upsert" ? asked : "fail";
  return { kind: "postgres", server, table: showTable(splitTable(table)), mode, key, onDuplicate };
}

/** Whether a plan is for a table in Postgres, in a form that this program knows. */
export function isPostgresPlan({ target }: Plan): boolean {
  return schema.safeParse(target).success;
}

/** What a plan pins of its table. @throws Error for a plan that `isPostgresPlan` does not admit */
export function plannedTarget({ target }: Plan): PostgresTarget {
  return schema.parse(target);
}

/**
 * Rows are written as the plan says, or not at all: into its table, in its mode, by its key, even if the spec has
 * changed since.
 * @param act what cannot be done: "finishing"
 * @throws JobError PLAN_CHANGED
 */
export function requirePlannedTarget({ runId, target }: Plan, asked: PostgresTarget, act: string): void {
  const { lines, isElsewhere } = compareTargets(target, asked);
  if (lines.length > 0) {
    throw new JobError("PLAN_CHANGED", `${act} run ${runId}: ${lines.join("; ")}`, {
      hint: isElsewhere
        ? "give each job a name of its own; or name the table of the plan in output.postgres.table again"
        : "restore what was planned, and run the same command again; or score again, as another run: run --new-run",
    });
  }
}
