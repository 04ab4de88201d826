import { Worker } from "node:worker_threads";
import type { DecodeWorkers } from "../scoring/workers/slice-reader.js";
import { decodeWorker } from "./worker-threads.js";

/** Starts workers that only decode. Nothing native runs in them, so they may be ended at any time. */
export function startDecodeWorkers(count: number): DecodeWorkers {
  const ports = Array.from({ length: count }, () => new Worker(decodeWorker, { name: "decode" }));
  return {
    ports,
    async stop() {
      await Promise.all(ports.map((worker) => worker.terminate()));
    },
  };
}
