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

/** Whether a plan is of kept challenger predictions. Another job with the same name must not use it. */
export function isMarkedKept({ kept }: Pick<Plan, "kept">): boolean {
  return kept === true;
}
