import type { RunId } from "./plan.js";

/** Hex sha256 of a UTF-8 text; passed in, since this room is pure. */
export type Sha256 = (text: string) => string;

/**
 * The same job with the same params is the same run. Params are sorted by name, so that their order in the
 * spec does not matter.
 */
export function runIdOf(job: string, params: Readonly<Record<string, string>>, sha256: Sha256): RunId {
  const canonical = Object.keys(params)
    .toSorted()
    .map((name) => [name, params[name]]);
  return `${job}-${sha256(JSON.stringify(canonical)).slice(0, 12)}` as RunId;
}

/** `base` for the first run, `base-r2` for the second that `--new-run` opens, and so on. */
export function numberedRunId(base: RunId, number: number): RunId {
  return number === 1 ? base : (`${base}-r${number}` as RunId);
}

/** Takes a numbered run id apart. */
export function splitRunId(runId: RunId): { base: RunId; number: number } {
  const [, base, number] = /^(.+-[0-9a-f]{12})-r([1-9]\d{0,8})$/.exec(runId) ?? [];
  return base === undefined ? { base: runId, number: 1 } : { base: base as RunId, number: Number(number) };
}
