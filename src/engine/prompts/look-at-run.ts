import { JobError } from "../../util/errors.js";
import type { LookAtPaid, Price, SentBatch, Spent } from "../paid-engine.js";
import { type ModelServer, withoutRetry } from "../served/server.js";
import { openBatchApi } from "./batch/batch-api.js";
import { hasEnded } from "./batch/batch-object.js";
import { batchesOfRun, filesOfRun } from "./batch/take-up.js";
import { count, nothingSpent, readKept } from "./kept-answers.js";

interface LookOptions {
  readonly server: ModelServer;
  readonly transport: "online" | "batch";
  readonly price: Price | undefined;
}

/** Looks at what a run has kept, and at its batches. */
export function lookAtRun({ server, transport, price }: LookOptions): LookAtPaid {
  return async (run, kept) => ({
    kept: await sumOf(kept),
    price,
    batches: transport === "batch" ? await batchesOf(server, run).catch(asJobError) : undefined,
  });
}

async function sumOf(kept: Parameters<LookAtPaid>[1]): Promise<Spent> {
  const sum = nothingSpent();
  for await (const { answer } of readKept({ read: () => kept })) {
    count(sum, answer);
  }
  return sum;
}

async function batchesOf(server: ModelServer, run: Parameters<LookAtPaid>[0]): Promise<readonly SentBatch[]> {
  const api = openBatchApi(withoutRetry(server));
  const batches = await api.batches();
  const files = new Map(await filesOfRun(api, run));
  return batchesOfRun({ run, files }, batches).map((batch) => {
    const { id, status, total, completed } = batch;
    return { id, status, requests: total, answered: completed, hasEnded: hasEnded(batch) };
  });
}

/** The server may be away: that hides nothing else of the run. */
function asJobError(error: unknown): JobError {
  if (error instanceof JobError) {
    return error;
  }
  throw error;
}
