import { type Damage, JobError } from "../../util/errors.js";
import type { Plan } from "../../plan/plan.js";
import type { Layout } from "./layout.js";

/** An output file that differs from what was committed. */
export interface DamagedFile {
  readonly path: string;
  readonly found: string;
  readonly cause?: unknown;
}

/** The error for a damaged output that a new run can replace. `hint`: another way to repair it. */
export function damagedOutput(
  message: string,
  { hint, damage, cause }: { readonly hint: string; readonly damage: Damage; readonly cause?: unknown },
): JobError {
  return new JobError("OUTPUT_DAMAGED", message, {
    hint: `${hint}; or start over with --new-run, which scores all rows again and then removes the old parts`,
    damage,
    cause,
  });
}

/**
 * Reports all damaged files of a run in one error; does nothing where there are none.
 * @throws JobError OUTPUT_DAMAGED
 */
export function refuseDamaged(
  runId: string,
  files: readonly DamagedFile[],
  hint: { readonly one: string; readonly more: string },
): void {
  const [first, ...others] = files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  if (first === undefined) {
    return;
  }
  const more =
    others.length === 0 ? "" : `; ${others.length} more ${others.length === 1 ? "part is" : "parts are"} damaged`;
  throw damagedOutput(`checking ${first.path}: ${first.found}${more}`, {
    hint: others.length === 0 ? hint.one : `${hint.more} (infer-batch status lists them)`,
    damage: { runId, found: [first, ...others].map(({ path, found }) => `${path}: ${found}`) },
    ...(first.cause instanceof Error ? { cause: first.cause } : {}),
  });
}

/** Hints at how damaged parts of a published run are repaired. An approved run is scored completely. */
export function repairOfParts({ staged }: Pick<Plan, "staged">): { readonly one: string; readonly more: string } {
  return staged
    ? { one: "restore it", more: "restore them" }
    : {
        one: "restore it; or delete _SUCCESS and the part, and run the same command again: its span is then scored anew",
        more: "restore them; or delete _SUCCESS and the parts, and run the same command again: their spans are then scored anew",
      };
}

/**
 * The error for a part that is found gone or changed when its run is finished. A staged run is approved then: it scores no
 * span again, and a new run can take its place.
 * @param hint how a run that is not staged goes on
 */
export function lostPart({ runId, staged }: Pick<Plan, "runId" | "staged">, message: string, hint: string): JobError {
  return staged
    ? damagedOutput(message, { hint: repairOfParts({ staged }).one, damage: { runId } })
    : new JobError("OUTPUT_DAMAGED", message, { hint });
}

/** The error for an attempt whose run was superseded by a later one. */
export function superseded({ folder, runId }: Pick<Layout, "folder" | "runId">, later: string): JobError {
  return new JobError("PLAN_CHANGED", `checking ${folder}: run ${later} came after ${runId}`, {
    hint: "run the same command again: it continues that run",
  });
}
