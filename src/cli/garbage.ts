import { setFlagsFromString } from "node:v8";

/**
 * Takes the heap's garbage in one go when it is due, instead of step by step. Ours is a few megabytes of objects that
 * hold hundreds of megabytes of buffers, so marking all of it takes milliseconds; but V8 begins each round early, for
 * the bytes of the buffers, and the rounds together took a tenth of a job's CPU time (docs/decisions.md, 67).
 */
export function collectGarbageAtOnce(): void {
  setFlagsFromString("--no-incremental-marking");
}
