import { refuseSmallAddressSpace } from "./address-space.js";
import { startThread } from "../engine/onnx/early-threads.js";
import type { Worker } from "node:worker_threads";

/** The file that runs in workers that have a session of the model. */
export const scoringWorker = new URL("./scoring-worker.js", import.meta.url);
/** The file that runs in workers that only decode. */
export const decodeWorker = new URL("./decode-worker.js", import.meta.url);

/** @throws JobError USAGE where `ulimit -v` leaves it no room */
export function startScoringWorker(): Worker {
  refuseSmallAddressSpace();
  return startThread(scoringWorker);
}
