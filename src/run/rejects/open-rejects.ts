import type { Plan } from "../../plan/plan.js";
import type { SpanRange } from "../../plan/worker-shares.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { ScoringOptions } from "../../scoring/score.js";
import type { RunSink } from "../../sink/port.js";
import { isS3Uri } from "../../spec/s3/s3-uri.js";
import { seedsOf, timerOf } from "../reusing/open-reuse.js";
import { openKeptCursor } from "./kept-cursor.js";
import { openEarlier } from "./plan-rejects.js";
import { readRejected } from "./rejected-rows.js";

/** How a run scores the rejects of an earlier one alone. */
export type RejectScoring = Pick<ScoringOptions, "reuse" | "isScored"> & AsyncDisposable;

export interface RejectsInput {
  readonly plan: Plan;
  readonly run: Pick<RunSink, "committed">;
  readonly share: SpanRange;
  /** Whether spans of other workers may be scored, too. */
  readonly steal: boolean;
}

/**
 * Opens the run whose rejects are scored: its other rows keep their predictions. undefined: the plan scores all rows.
 * @throws JobError OUTPUT_DAMAGED if that run is gone
 */
export async function openRejects(
  context: JobContext,
  { plan, run, share, steal }: RejectsInput,
): Promise<RejectScoring | undefined> {
  const { rejectsOf } = plan;
  if (rejectsOf === undefined) {
    return undefined;
  }
  const earlier = await openEarlier(context, rejectsOf);
  const isWanted = (span: number): boolean =>
    run.committed[span] === 0 && (steal || (span >= share.from && span < share.to));
  const rejected = await readRejected(earlier.stored.plan, earlier.run.rejects(), isWanted);
  context.log.info(
    `scoring ${count(rejected.count, "rejected row")} of run ${rejectsOf.runId}; its other rows keep their predictions`,
  );
  if (rejectsOf.kept === "in_table") {
    return { isScored: rejected.has, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const { contract } = plan;
  const reader = await context.openPartReader(earlier.run.parts?.().folder ?? "");
  const away = isS3Uri(context.spec.output.parquet?.path ?? "") ? "OBJECT_STORE" : "DISK";
  const kept = { plan: earlier.stored.plan, run: earlier.run, reader, rejected, away } as const;
  const cursor = openKeptCursor(contract.outputs, kept);
  return {
    reuse: {
      hashing: contract.reuse && { seeds: seedsOf(context, plan) },
      contract,
      timer: timerOf(context),
      find: cursor.find,
      keeps: (row) => !rejected.has(row),
    },
    async [Symbol.asyncDispose]() {
      await cursor[Symbol.asyncDispose]();
      await reader[Symbol.asyncDispose]();
    },
  };
}
