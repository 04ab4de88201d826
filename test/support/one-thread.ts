import { MessageChannel } from "node:worker_threads";
import { onTestFinished } from "vitest";
import type { Contract } from "#src/binding/contract.js";
import type { ScoringThreads } from "#src/formats/port.js";
import { serve } from "#src/scoring/workers/unit-guest.js";

/** A thread, which is this one, with a model that makes `score` of the features of its only input. */
export function oneThread(
  contract: Contract,
  score: (features: Float32Array) => Float32Array<ArrayBuffer>,
): ScoringThreads {
  return {
    threads: 1,
    contract,
    tensors: ["score"],
    batchRows: () => 1000,
    rowsLeft: 2 ** 31,
    host() {
      const { port1, port2 } = new MessageChannel();
      serve(port2, async ({ inputs }) => {
        const data = score(inputs[0]?.data as Float32Array);
        return await Promise.resolve({ outputs: [{ dtype: "float32", dims: [data.length], data }], ms: 1 });
      });
      onTestFinished(() => {
        port1.close();
      });
      return [port1];
    },
  };
}
