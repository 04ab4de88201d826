import { JobError, reworded } from "../../base/errors.js";
import { shellWord } from "../../base/texts.js";
import { isRolledBack } from "../../run/lifecycle/lifecycle.js";
import { paramTexts, splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { RunSink, Sink } from "../target.js";

/**
 * Where the rows of a run go, too, after it is published at its target. It is never part of what is exactly once: it may
 * fail without the run, and what it lacks comes from the target when the run is finished again.
 */
export interface After {
  /** Name of the place in messages. */
  readonly place: string;
  readonly warn: (message: string) => void;
  /** @throws JobError CONTRACT for a plan whose rows it cannot take */
  check(plan: Plan): void;
  /** Checks that the rows of a plan could be published. Changes nothing. @throws JobError the errors of `publish` */
  rehearse(plan: Plan): Promise<void>;
  /**
   * Publishes the rows of a run that is published at its target, unless those of a newer run are there. Safe to repeat,
   * also at once: it goes on where it was killed, and keeps alive what readers have.
   * @param isWithdrawn whether a newer run is no longer published
   * @throws JobError NETWORK (75) for what passes, PERMISSION or USAGE (64) for what does not
   */
  publish(run: RunSink, isWithdrawn: (runId: RunId) => Promise<boolean>): Promise<void>;
}

/** A target whose runs are published elsewhere, too, each time that they are finished, and when one is rolled back. */
export function publishingAfter(sink: Sink, after: After): Sink {
  const openRun = async (runId: RunId): Promise<RunSink | undefined> => {
    const { base, number } = splitRunId(runId);
    const stored = await sink.find(base, number);
    return stored === undefined || stored.pruned !== undefined ? undefined : await sink.open(stored);
  };
  /** Only rows of a table are rolled back. */
  const isWithdrawn = async (runId: RunId): Promise<boolean> =>
    sink.table !== undefined && isRolledBack((await openRun(runId))?.state ?? { kind: "unfinished" });
  /** @param done what has been done @param next how readers get the rows there, too */
  const publish = async (run: RunSink, done: string, next: string): Promise<void> => {
    try {
      await after.publish(run, isWithdrawn);
    } catch (error) {
      if (!(error instanceof JobError) || ![64, 75].includes(error.exitCode)) {
        throw error;
      }
      const first = error.hint === undefined ? "" : `${error.hint}, then `;
      throw reworded(error, { hint: `${done}; ${after.place} is not yet: ${first}${next}` });
    }
  };

  const { table } = sink;
  return {
    ...sink,
    async rehearse(plan, isPlanned) {
      after.check(plan);
      const untried = await sink.rehearse(plan, isPlanned);
      await after.rehearse(plan);
      return untried;
    },
    async create(plan, insteadOf) {
      after.check(plan);
      return await sink.create(plan, insteadOf);
    },
    async open(stored, how) {
      const run = await sink.open(stored, how);
      return {
        ...run,
        async finish(attempt) {
          const end = await run.finish(attempt);
          if (end === "published" && !isRolledBack(run.state)) {
            const next = "run the same command again, which needs neither model nor input";
            await publish(run, `run ${run.plan.runId} is published`, next);
          }
          return end;
        },
      };
    },
    table: table && {
      ...table,
      async rollBack() {
        const rolledBack = await table.rollBack();
        const restored = rolledBack.restored && (await openRun(rolledBack.restored.runId as RunId));
        if (restored === undefined) {
          after.warn(`${after.place} still has run ${rolledBack.undone.runId}, until it expires`);
        } else {
          const { runId, params } = restored.plan;
          const command = ["infer-batch run", ...paramTexts(params).map((text) => `--param ${shellWord(text)}`)].join(
            " ",
          );
          await publish(restored, `the table has the rows of run ${runId} again`, `${command}, with the spec`);
        }
        return rolledBack;
      },
    },
  };
}
