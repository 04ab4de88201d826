import type { Engine } from "../../engine/port.js";
import { bestEffort } from "../../util/promises.js";
import { count } from "../../report/report.js";
import { runSpending, spentOfRecord } from "./spending.js";
import type { JobContext } from "../../scoring/context.js";
import { recordedSpending, recordSpending } from "../notes.js";
import type { RunId } from "../../plan/plan.js";
import type { RunSink } from "../../sink/port.js";

interface PayingParts {
  readonly engine: Engine;
  readonly run: RunSink;
  readonly runId: RunId;
}

/** An attempt whose answers are kept. Disposing keeps what is left, and records at the target what the run has paid for. */
export interface PayingAttempt extends AsyncDisposable {
  /**
   * Counts what all workers have paid for, and records at the target. Called when this worker's share is committed, before
   * the run is finished or held.
   * @throws JobError MODEL_CHANGED, DISK, OBJECT_STORE, DATABASE
   */
  settle(): Promise<void>;
}

/**
 * Takes over the answers that attempts of a run have kept, and keeps those of this attempt at the target. undefined:
 * predictions are free.
 * @throws JobError MODEL_CHANGED, DISK, OBJECT_STORE, DATABASE
 */
export async function beginPaying(
  { worker, log, sink }: Pick<JobContext, "worker" | "log" | "sink">,
  { engine: { paid }, run, runId }: PayingParts,
): Promise<PayingAttempt | undefined> {
  if (paid === undefined) {
    return undefined;
  }
  const journal = run.answers();
  await journal.keep([]);
  const begun = await paid.begin(journal, worker);
  const { answers } = paid.spending.earlier;
  if (answers > 0) {
    log.info(`${count(answers, "answer")} of earlier attempts are kept, and not asked for again`);
  }
  let recorded = 0; // a run that paid for nothing has nothing to record
  const record = async (): Promise<void> => {
    const { spending } = paid;
    const known = spending.run.answers;
    if (known > recorded) {
      recorded = known;
      await recordSpending(sink, runId, runSpending(spending));
    }
  };
  const recount = (): Promise<void> =>
    paid.recount(async () => {
      const told = await recordedSpending(sink, runId);
      return told && spentOfRecord(told);
    });
  return {
    async settle() {
      await (worker.count === 1 ? undefined : recount());
      await record();
    },
    async [Symbol.asyncDispose]() {
      await begun[Symbol.asyncDispose]();
      if (recorded === 0 && worker.count > 1) {
        await bestEffort(recount); // an attempt that ends with an error counts what the others have paid, too
      }
      await record();
    },
  };
}
