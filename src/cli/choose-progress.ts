import { barProgress, lineProgress, type Progress, silentProgress } from "../report/progress.js";
import type { Output } from "./io.js";

/** Shows progress as a bar on a terminal, else as lines of a log. @param log logs a line */
export function chooseProgress(
  { progress, quiet }: { readonly progress: boolean; readonly quiet?: boolean | undefined },
  log: (line: string) => void,
  stderr: Output,
): Progress {
  if (!progress || quiet === true) {
    return silentProgress;
  }
  return stderr.isTTY === true ? barProgress(stderr, monotonicMs) : lineProgress(log, monotonicMs);
}

function monotonicMs(): number {
  return performance.now();
}
