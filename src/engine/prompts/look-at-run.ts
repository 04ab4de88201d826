import { JobError } from "../../util/errors.js";
import type { LookAtPaid, Price, SentBatch, Spent } from "../paid-engine.js";
import { type ModelServer, withoutRetry } from "../served/server.js";
import { openBatchApi } from "./batch/batch-api.js";
import { hasEnded } from "./batch/batch-object.js";
import { batchesOfRun, filesOfRun } from "./batch/take-up.js";
import { count, nothingSpent, readKept } from "./kept-answers.js";

interface LookOptions {
  readonly price: Price | undefined;
  /** Opens the server that has the run's batches; undefined: rows are asked one by one. */
  readonly open?: (() => Promise<ModelServer>) | undefined;
}

/** Looks at what a run has kept, and at its batches. */
export function lookAtRun({ price, open }: LookOptions): LookAtPaid {
  return async (run, kept) => ({
    kept: await sumOf(kept).catch(asJobError),
    price,
    batches: open === undefined ? undefined : await batchesOf(open, run).catch(asJobError),
  });
}

async function sumOf(kept: Parameters<LookAtPaid>[1]): Promise<Spent> {
  const sum = nothingSpent();
  for await (const { answer } of readKept({ read: () => kept })) {
    count(sum, answer);
  }
  return sum;
}

async function batchesOf(
  open: () => Promise<ModelServer>,
  run: Parameters<LookAtPaid>[0],
): Promise<readonly SentBatch[]> {
  const server = await open();
  using _ = server.connections;
  const api = openBatchApi(withoutRetry(server));
  const batches = await api.batches();
  const files = new Map(await filesOfRun(api, run));
  return batchesOfRun({ run, files }, batches).map((batch) => {
    const { id, status, total, completed } = batch;
    return { id, status, requests: total, answered: completed, hasEnded: hasEnded(batch) };
  });
}

/** What cannot be read, or a server that is away, hides nothing else of the run. */
function asJobError(error: unknown): JobError {
  if (error instanceof JobError) {
    return error;
  }
  throw error;
}
