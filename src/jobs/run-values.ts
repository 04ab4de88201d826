import type { JobSpec } from "../spec/job-spec.js";
import type { ExitCode } from "../util/errors.js";

/** How the run of a value ended, or that it was not started. */
export const valueStatuses = [
  "complete",
  "already_complete",
  "partial",
  "held",
  "discarded",
  "pruned",
  "failed",
  "no_input",
  "stopped",
  "not_started",
] as const;
export type ValueStatus = (typeof valueStatuses)[number];

export interface ValueEnd {
  readonly status: ValueStatus;
  readonly exitCode: ExitCode;
}

/** How the runs of several values follow each other. Runs start in the order of their values. */
export interface RunOrder {
  /** Runs at once. */
  readonly parallel: number;
  /** Why there are no more at once than one, if more are asked for. */
  readonly why?: string | undefined;
  /** Whether no further run is started after one that ended so. */
  readonly stopsAfter: (end: ValueEnd) => boolean;
}

export interface OrderOptions {
  readonly parallel: number;
  readonly stopOnFailure: boolean;
  /** Whether a run may overwrite the rows of a newer one. */
  readonly allowOlder: boolean;
}

/**
 * Decides how the runs of several dates of a job follow each other.
 *
 * Where a later run overwrites rows of earlier ones (Postgres: upsert, replace), runs go one at a time, and a run that
 * fails or is held ends the backfill: if a later date were published first, this one could be published only over
 * newer rows, which takes `allowOlder`. A value without input has no rows to publish, and a discarded or
 * pruned run publishes none. Runs with checks go one at a time as well, because each is compared with the published runs before
 * it.
 */
export function orderOf(
  { output: { postgres }, checks, engine }: Pick<JobSpec, "output" | "checks" | "engine">,
  { parallel, stopOnFailure, allowOlder }: OrderOptions,
): RunOrder {
  const overwrites = postgres !== undefined && postgres.mode !== "append";
  const isInOrder = overwrites && !allowOlder;
  const why = overwrites
    ? `mode ${postgres.mode}: later dates overwrite earlier ones`
    : checks !== undefined
      ? "the checks compare each run with those before it"
      : engine.providers === "auto" || engine.providers.includes("webgpu")
        ? "a process can use webgpu for one run at a time"
        : undefined;
  return {
    parallel: why === undefined ? parallel : 1,
    why: parallel > 1 ? why : undefined,
    stopsAfter: ({ status }) => (status === "failed" || status === "held") && (stopOnFailure || isInOrder),
  };
}

/**
 * Runs the job for several values, in order, some at once. After an end that stops the others, or once `signal`
 * is aborted, no further run is started; those under way end by themselves.
 * @returns an end for each value; undefined: its run was not started
 */
export async function runValues<V, E extends ValueEnd>(
  values: readonly V[],
  { parallel, stopsAfter, signal }: RunOrder & { readonly signal: AbortSignal },
  runOne: (value: V) => Promise<E>,
): Promise<(E | undefined)[]> {
  const ends: (E | undefined)[] = values.map(() => undefined);
  const pending = values.entries();
  let stopped = false;
  const work = async (): Promise<void> => {
    for (const [index, value] of pending) {
      const end = await runOne(value);
      ends[index] = end;
      stopped ||= stopsAfter(end);
      if (stopped || signal.aborted) {
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, values.length) }, work));
  return ends;
}

/** Exit codes, the worst first: a bug; errors that a person corrects; decisions of a person; transient errors. */
const worstFirst: readonly ExitCode[] = [1, 64, 66, 65, 67, 75];

/** Returns the end with the worst exit code; undefined: all are 0. */
export function worstOf<E extends ValueEnd>(ends: readonly E[]): E | undefined {
  const failed = ends.filter(({ exitCode }) => exitCode !== 0);
  const rank = ({ exitCode }: E): number => {
    const found = worstFirst.indexOf(exitCode);
    return found < 0 ? worstFirst.length : found;
  };
  return failed.toSorted((one, other) => rank(one) - rank(other))[0];
}
