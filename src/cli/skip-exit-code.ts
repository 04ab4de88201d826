import { InvalidArgumentError } from "commander";
import { exitCodes } from "../util/errors.js";

/** Shells and container runtimes give 126 to 255 a meaning of their own, and 1 and 2 to too many failures. */
const first = 3;
const last = 125;
const taken = new Set<number>(Object.values(exitCodes));

/**
 * What `run --skip-exit-code` ends with when there is nothing to do: a code that nothing else ends with.
 * @throws InvalidArgumentError
 */
export function skipExitCode(text: string): number {
  const code = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (taken.has(code)) {
    throw new InvalidArgumentError(`Exit code ${code} means something else here; 99 is free.`);
  }
  if (!(code >= first && code <= last)) {
    throw new InvalidArgumentError(`Expected a number from ${first} to ${last}, such as 99.`);
  }
  return code;
}
