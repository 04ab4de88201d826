import type { RunState } from "../run/state.js";
import type { LoadedSpec } from "../spec/load.js";

/** A dry run retries only for a short time, because a person waits for it. */
const mostRetrySeconds = 10;

/** Returns the spec with the retries of a dry run. */
export function forPerson(loaded: LoadedSpec): LoadedSpec {
  const { retry } = loaded.spec;
  const maxSeconds = Math.min(retry.max_seconds, mostRetrySeconds);
  return { ...loaded, spec: { ...loaded.spec, retry: { ...retry, max_seconds: maxSeconds } } };
}

/** The run that the target has, with its status; undefined: it has none. A run after `--new-run` has another id. */
export function foundText(planned: string, { runId, status }: RunState): string | undefined {
  return status === "not_planned"
    ? undefined
    : `${runId === planned ? "this run" : `run ${runId}`}: ${status.replaceAll("_", " ")}`;
}
