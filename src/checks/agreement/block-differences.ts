import type { BlockComparer } from "./block-comparer.js";
import { comparerInLoops } from "./difference-loops.js";
import { plainComparer } from "./plain-differences.js";

let opened: BlockComparer | undefined;

/** Returns what compares blocks in this thread, one comparison after the other. */
export function blockComparer(): BlockComparer {
  opened ??= comparerInLoops() ?? plainComparer();
  return opened;
}
