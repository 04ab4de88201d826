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
