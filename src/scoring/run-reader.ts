import { outputTensors } from "../binding/contract.js";
import type { JobContext } from "./context.js";
import { featurePlanOf, keyColumns, unprofiledText } from "./features.js";
import type { ScoringOptions } from "./score.js";
import { openSliceReader, type SliceReader } from "./workers/slice-reader.js";

/** Reads a run's slices in the engine's workers if they can score the rows that they read, else in workers that only decode. */
export function openRunReader(
  { spec, decodeWorkers, memory, record, log }: JobContext,
  { plan, decoder, engine, sizer, reuse }: Pick<ScoringOptions, "plan" | "decoder" | "engine" | "sizer" | "reuse">,
): SliceReader {
  const { contract } = plan;
  const features = featurePlanOf(plan, keyColumns(spec));
  const left = unprofiledText(plan, keyColumns(spec));
  if (left !== undefined) {
    log.info(`checks: ${left}`);
  }
  const { unitPorts: ports, sessions = 1 } = engine.local ?? {};
  const warned = new Set<string>();
  return openSliceReader({
    decoder,
    ...decodeWorkers,
    memory,
    scoring:
      ports === undefined
        ? undefined
        : {
            count: sessions,
            ports,
            contract,
            tensors: outputTensors(contract),
            batchRows: () => sizer.rows,
            features,
            hashing: reuse?.hashing,
          },
    onFailure({ kind, message }) {
      record.addFailedUnit(kind);
      const isNew = !warned.has(kind);
      warned.add(kind);
      if (kind === "unsupported" || !isNew) {
        log.debug(`rows are read again in the main thread (${kind}): ${message}`);
      } else {
        const bug = kind === "defect" ? "; this is a bug in infer-batch" : "";
        log.warn(`rows are read again, more slowly, because a worker could not read them${bug}: ${message}`);
      }
    },
    onGivenUp(reason) {
      log.debug(`the main thread reads all further slices: ${reason}`);
    },
  });
}
