import { JobError } from "../base/errors.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import { showBytes } from "../base/shown-numbers.js";

/** The hint for a shard that is damaged, or was never whole. */
export const rewriteShard = "write the shard again, or take it out of input.path";

interface LargeData {
  readonly sizeBytes: number;
  /** The part of the budget that it must fit into. */
  readonly limitBytes: number;
  /** What is large, in messages: "a page". */
  readonly what: string;
  /** How to write the shard otherwise. */
  readonly remedy: string;
}

/** For data that must be held as a whole. It is no transient error (75): another attempt with the budget fails, too. */
export function tooLarge(
  place: string,
  { bytes }: Pick<MemoryBudget, "bytes">,
  { sizeBytes, limitBytes, what, remedy }: LargeData,
): JobError {
  const parts = Math.round(bytes / limitBytes);
  const wanted = Math.ceil((sizeBytes * parts) / 2 ** 30);
  return new JobError(
    "TOO_LARGE",
    `${place}: ${what} has ${showBytes(sizeBytes)} when it is unpacked, more than ${showBytes(limitBytes)}, which is one of ${parts} parts of engine.memory`,
    { hint: `set engine.memory to ${wanted}GiB if the machine has that much, or ${remedy}` },
  );
}
