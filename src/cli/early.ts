import { scoringWorker } from "../app/worker-threads.js";
import { type EarlyThreads, startEarlyThreads } from "../engine/onnx/early-threads.js";
import { hasRoomForThreads } from "../app/address-space.js";
import { usableCores } from "../app/cores.js";

/** For a command line that scores: begins what takes longest, on other cores than this one, before all else is loaded. */
export function startEarly([command, ...rest]: readonly string[]): EarlyThreads | undefined {
  const scores = command === "run" && rest.length > 0 && !rest.some((word) => word === "--help" || word === "-h");
  return scores && hasRoomForThreads() ? startEarlyThreads(scoringWorker, usableCores()) : undefined;
}
