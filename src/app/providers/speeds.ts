import { blankBatch, tensorOutputs } from "../../columnar/blank-rows.js";
import type { Engine } from "../../engine/port.js";
import type { ModelFile } from "../../models/port.js";
import type { EngineLayout } from "../../scoring/context.js";
import type { Provider } from "../../spec/engine-spec.js";
import { type EngineOptions, modelCopiesBytes, openEngine } from "../open-engine.js";

/** The speed of the model alone, while nothing is read or written. */
export interface Speed extends EngineLayout {
  readonly batchRows: number;
  readonly rowsPerSecond: number;
}

const batchSizes = [64, 256, 1024, 4096, 16_384];
/** A GPU may be faster with larger batches. */
const gpuBatchSizes = [...batchSizes, 65_536, 131_072];
/** Long enough for a dozen batches of most models. */
const msEach = 200;
/** Sizes whose batches would take longer are left out: `doctor` answers soon, with a slow model or device, too. */
const longestBatchMs = 1000;

/**
 * Scores blank rows with several batch sizes and layouts, on the provider that a run would use. Returns nothing for a
 * model with lists of any length, whose speed depends on them, and for one that refuses blank rows.
 * @param provider the one that a run would use
 */
export async function measureSpeeds(model: ModelFile, provider: Provider, options: EngineOptions): Promise<Speed[]> {
  const { cores } = options;
  const found: Speed[] = [];
  // Two threads with a session of WebGPU each crash in ONNX Runtime 1.30, so a GPU has one session, as in a run.
  const hasCopies = provider === "cpu" && cores > 1 && model.sizeBytes * cores <= modelCopiesBytes;
  for (const layout of [...(hasCopies ? [{ sessions: cores, threads: 1 }] : []), { sessions: 1, threads: cores }]) {
    await using engine = await openEngine(model, layout, options);
    let msPerRow = 0;
    for (const size of sizesOf(engine)) {
      if (size * msPerRow > longestBatchMs) {
        break;
      }
      const rowsPerSecond = await rate(engine, size);
      if (rowsPerSecond === undefined) {
        break; // larger ones would not fit either
      }
      found.push({ ...layout, batchRows: size, rowsPerSecond });
      msPerRow = (1000 * engine.concurrency) / rowsPerSecond;
    }
  }
  return found;
}

function sizesOf({ signature, provider }: Engine): readonly number[] {
  const shapes = signature.inputs.map(({ shape }) => shape);
  if (shapes.some(([, ...more]) => more.includes(null))) {
    return [];
  }
  const fixed = shapes.map(([rows]) => rows).find((rows) => typeof rows === "number");
  return fixed === undefined ? (provider === "cpu" ? batchSizes : gpuBatchSizes) : [fixed];
}

/** Rows per second with as many batches at once as in a run; undefined if the model or the memory refuses them. */
async function rate(engine: Engine, rows: number): Promise<number | undefined> {
  const outputs = tensorOutputs(engine.signature);
  let calls = 0;
  let isRefused = false;
  const caller = async (until: () => boolean): Promise<void> => {
    do {
      const { kind } = await engine.run({ inputs: blankBatch(engine.signature, rows), outputs, isBlank: true });
      isRefused ||= kind !== "done";
      calls += 1;
    } while (!isRefused && !until());
  };
  const callers = async (until: () => boolean): Promise<void> => {
    await Promise.all(Array.from({ length: engine.concurrency }, () => caller(until)));
  };
  await callers(() => true); // the first call allocates memory
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1); // trees are compiled, as in a run of many rows
  calls = 0;
  const startedMs = performance.now();
  await callers(() => performance.now() - startedMs >= msEach);
  return isRefused ? undefined : Math.round((calls * rows * 1000) / (performance.now() - startedMs));
}
