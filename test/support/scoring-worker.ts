import { MessageChannel } from "node:worker_threads";
import { onTestFinished } from "vitest";
import { openUnitReader } from "#src/job/threads/serve-units.js";
import type { Contract } from "#src/models/binding/contract.js";
import type { ScoringWorkers } from "#src/flow/workers/slice-reader.js";
import { serveUnits } from "#src/flow/workers/unit-server.js";

/** A worker, in this thread, with a model that makes `score` of the features of its only input. */
export function oneWorker(
  contract: Contract,
  score: (features: Float32Array) => Float32Array<ArrayBuffer>,
): ScoringWorkers {
  return {
    count: 1,
    contract,
    tensors: ["score"],
    batchRows: () => 1000,
    ports() {
      const { port1, port2 } = new MessageChannel();
      serveUnits(port2, {
        openReader: openUnitReader,
        async run({ inputs }) {
          const data = score(inputs[0]?.data as Float32Array);
          return await Promise.resolve({ outputs: [{ dtype: "float32", dims: [data.length], data }], ms: 1 });
        },
      });
      onTestFinished(() => {
        port1.close();
      });
      return [port1];
    },
  };
}
