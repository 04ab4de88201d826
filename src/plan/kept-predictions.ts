import type { Plan } from "./plan.js";

const suffix = "-challenger";

/** Names the job whose runs are the kept predictions of a job's challenger. */
export function keptJob(name: string): string {
  return `${name}${suffix}`;
}

/** Names the job whose challenger made the kept predictions of job `name`. A name without the suffix stays as it is. */
export function jobOfKept(name: string): string {
  return name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
}

/** Whether a plan is marked as kept challenger predictions. Another job with the same name must not use it. */
export function isMarkedKept({ kept }: Pick<Plan, "kept">): boolean {
  return kept !== undefined;
}

/**
 * Whether a plan may be of kept challenger predictions. Older versions did not mark such plans. An unmarked plan counts
 * if it has no `profiles`, is not staged (but for an erasure) and has no checks; an ordinary run of that age can look the
 * same.
 */
export function mayBeKept({ kept, profiles, staged, checks, erasure }: Plan): boolean {
  const wasStaged = staged && erasure === undefined;
  return kept !== undefined || (profiles === undefined && !wasStaged && checks === null);
}
