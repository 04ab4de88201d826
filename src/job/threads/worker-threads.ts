import { Worker } from "node:worker_threads";
import { startThread } from "../../models/onnx/early-threads.js";
import type { DecodeWorkers } from "../../flow/workers/slice-reader.js";
import { refuseSmallAddressSpace } from "../machine.js";

/** The file that runs in workers that have a session of the model. */
export const scoringWorker = new URL("./scoring-worker.js", import.meta.url);
const decodeWorker = new URL("./decode-worker.js", import.meta.url);

/** Starts a worker for a session of the model. @throws JobError USAGE if `ulimit -v` leaves too little address space */
export function startScoringWorker(): Worker {
  refuseSmallAddressSpace();
  return startThread(scoringWorker);
}

/** Starts workers that only decode. They load no native library, so that they may be terminated at any time. */
export function startDecodeWorkers(count: number): DecodeWorkers {
  const ports = Array.from({ length: count }, () => new Worker(decodeWorker, { name: "decode" }));
  return {
    ports,
    async stop() {
      await Promise.all(ports.map((worker) => worker.terminate()));
    },
  };
}
