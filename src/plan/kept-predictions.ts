import type { Plan } from "./plan.js";

const suffix = "-challenger";

/** Names the job whose runs are the kept predictions of a job's challenger. */
export function keptJob(name: string): string {
  return `${name}${suffix}`;
}

/** Names the job whose challenger made kept predictions; the inverse of `keptJob`. */
export function jobOfKept(name: string): string {
  return name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
}

/** Whether a plan is marked as one of kept predictions, which another job with the name of their job must leave alone. */
export function isMarkedKept({ kept }: Pick<Plan, "kept">): boolean {
  return kept !== undefined;
}

/**
 * Whether a plan may be one of kept predictions. Before they were marked, no plan had `profiles`; a run of another job that
 * was planned then cannot be told from them if it has no checks.
 */
export function mayBeKept({ kept, profiles, staged, checks }: Plan): boolean {
  return kept !== undefined || (profiles === undefined && !staged && checks === null);
}
