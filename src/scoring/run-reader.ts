import { outputTensors } from "../binding/contract.js";
import type { JobContext } from "./context.js";
import { featurePlanOf, keyColumns, tellLeftFeatures } from "./features.js";
import type { ScoringOptions } from "./score.js";
import { openSliceReader, type SliceReader } from "./workers/slice-reader.js";

/**
 * Reads a run's slices in the engine's workers where these can score what they read, else in workers that only decode.
 * Rows that repeat are found in the main thread, before they are scored.
 */
export function openRunReader(
  { spec, decodeWorkers, memory, record, log }: JobContext,
  { plan, decoder, engine, sizer }: Pick<ScoringOptions, "plan" | "decoder" | "engine" | "sizer">,
): SliceReader {
  const { contract } = plan;
  const features = featurePlanOf(plan, keyColumns(spec));
  tellLeftFeatures(log, features);
  const { unitPorts: ports, sessions = 1 } = engine.local ?? {};
  const told = new Set<string>();
  return openSliceReader({
    decoder,
    ...decodeWorkers,
    memory,
    scoring:
      ports === undefined || spec.dedupe
        ? undefined
        : { count: sessions, ports, contract, tensors: outputTensors(contract), batchRows: () => sizer.rows, features },
    onFailure({ kind, message }) {
      record.addFailedUnit(kind);
      const isNew = !told.has(kind);
      told.add(kind);
      if (kind === "unsupported" || !isNew) {
        log.debug(`rows are read again in the main thread (${kind}): ${message}`);
      } else {
        const whose = kind === "defect" ? "; this is a bug in infer-batch" : "";
        log.warn(`rows are read again, slower, as a worker could not read them${whose}: ${message}`);
      }
    },
    onGivenUp(reason) {
      log.debug(`the main thread reads all further slices: ${reason}`);
    },
  });
}
