import type { Contract, InputBinding } from "../batch/contract.js";
import { blankInputs } from "../batch/packer.js";
import { tensorElement } from "../batch/tensor.js";
import { bytesPerElement } from "../batch/values.js";
import type { Engine } from "../engine/port.js";
import { assertNever } from "../errors.js";
import type { Plan } from "../plan/plan.js";
import { type BatchSizer, fixedSize, measuringSize, startingSize } from "./batch-size.js";
import type { JobContext } from "./job.js";

export interface WarmUpOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  /** That will be scored. */
  readonly rows: number;
}

/** Enough to lay out memory and page code in, and soon done with heavy models. */
const warmUpRows = 256;
/** The same, where it is not known how heavy the model is. */
const firstRows = 16;

/** Calls the model on blank rows, as its first call costs more than the others, and says how large batches are. */
export async function warmUp(
  { spec, log, nowMs }: JobContext,
  { plan: { contract, commitRows }, engine, rows }: WarmUpOptions,
): Promise<BatchSizer> {
  const given = contract.fixedBatchRows ?? spec.engine.batch_size;
  if (given !== "auto") {
    const batchRows = contract.fixedBatchRows ?? Math.min(given, commitRows);
    if (rows > 0) {
      await callAll(engine, contract, contract.fixedBatchRows ?? Math.min(batchRows, warmUpRows));
    }
    return fixedSize(batchRows);
  }
  const limit = Math.max(1, Math.min(commitRows, largest, Math.floor(batchBytes / bytesPerRow(contract))));
  if (rows === 0) {
    return fixedSize(startingSize(0, limit));
  }
  const blank = Math.min(firstRows, limit);
  await callAll(engine, contract, blank);
  const startedMs = nowMs();
  await callAll(engine, contract, blank);
  const msPerRow = (nowMs() - startedMs) / (blank * engine.concurrency);
  return measuringSize({
    start: startingSize(msPerRow, limit),
    limit,
    onSettled: (settled) => {
      log.debug(`batches of ${settled} rows are the fastest`);
    },
  });
}

/** More rows save no overhead that counts, and leave the cache. */
const largest = 16_384;
/** Of one batch's features: of larger ones nothing is in the cache any more when the next layer wants it. */
const batchBytes = 4 * 1024 * 1024;
const bytesPerText = 32;

function bytesPerRow({ inputs }: Contract): number {
  const widths = inputs.map((binding) => bytesOf(binding));
  return widths.reduce((sum, bytes) => sum + bytes, 1);
}

function bytesOf(binding: InputBinding): number {
  switch (binding.kind) {
    case "text":
      return bytesPerText;
    case "list":
      return binding.width * bytesPerElement(tensorElement(binding.dtype));
    case "matrix":
      return binding.columns.length * bytesPerElement(tensorElement(binding.dtype));
    default:
      return assertNever(binding);
  }
}

/** As many calls as are under way at once, so that each session has one. */
async function callAll(engine: Engine, contract: Contract, rows: number): Promise<void> {
  const outputs = [...new Set(contract.outputs.map(({ tensor }) => tensor))];
  const calls = Array.from({ length: engine.concurrency }, () =>
    engine.run({ inputs: blankInputs(contract, rows), outputs }),
  );
  await Promise.allSettled(calls); // a model may refuse zeros; that says nothing about its rows
}
