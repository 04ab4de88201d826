import { InvalidArgumentError } from "commander";
import { exitCodes } from "../util/errors.js";

// Shells and container runtimes give 126 to 255 their own meaning; 1 and 2 stand for too many failures.
const minCode = 3;
const maxCode = 125;
const usedCodes = new Set<number>(Object.values(exitCodes));

/**
 * Parses `run --skip-exit-code`, the exit code of a run that is already complete.
 * @throws InvalidArgumentError when it is not a number from 3 to 125, or is an exit code of other outcomes
 */
export function skipExitCode(text: string): number {
  const code = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (usedCodes.has(code)) {
    throw new InvalidArgumentError(`Exit code ${code} means something else here; 99 is free.`);
  }
  if (!(code >= minCode && code <= maxCode)) {
    throw new InvalidArgumentError(`Expected a number from ${minCode} to ${maxCode}, such as 99.`);
  }
  return code;
}
