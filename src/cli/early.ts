import { scoringWorker } from "../app/threads/worker-threads.js";
import { type EarlyThreads, startEarlyThreads } from "../engine/onnx/early-threads.js";
import { hasRoomForThreads, usableCores } from "../app/process-limits.js";

/** Starts the worker threads of `run`, its slowest part, on other cores before the rest of the program is loaded. */
export function startThreadsForRun([command, ...rest]: readonly string[]): EarlyThreads | undefined {
  const scores = command === "run" && rest.length > 0 && !rest.some((word) => word === "--help" || word === "-h");
  return scores && hasRoomForThreads() ? startEarlyThreads(scoringWorker, usableCores()) : undefined;
}
