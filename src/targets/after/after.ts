import { JobError, reworded } from "../../base/errors.js";
import { shellWord } from "../../base/texts.js";
import { replacedBy } from "../../run/lifecycle/published-run.js";
import { paramTexts, splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { KeyedRows, RunSink, Sink, StoredPlan } from "../target.js";

/**
 * Where the rows of a run go, too, after it is published at its target. It is never part of what is exactly once: it may
 * fail without the run, and what it lacks comes from the target when the run is finished again.
 */
export interface After {
  readonly place: string;
  /** @throws JobError CONTRACT for a plan whose rows it cannot take */
  check(plan: Plan): void;
  /** Checks that the rows of a plan could be published. Changes nothing. @throws JobError the errors of `publish` */
  rehearse(plan: Plan): Promise<void>;
  /**
   * Publishes the rows of a run that is published at its target, unless those of a newer run are there. Safe to repeat,
   * also at once: it goes on where it was killed, and keeps alive what readers have.
   * @param isShown whether readers of the target have this run; undefined: they have those of many runs, and may ask for any
   * @throws JobError NETWORK (75) for what passes, PERMISSION or USAGE (64) for what does not
   */
  publish(run: RunSink, isShown: () => Promise<boolean | undefined>): Promise<void>;
  /**
   * Opens the rows of a published run by their keys, of which none is found while the place is away; undefined: it has
   * another key, or other columns.
   */
  openKeyedRows(run: Pick<StoredPlan, "plan" | "planId">, key: readonly string[]): Promise<KeyedRows | undefined>;
}

/** A target whose runs are published elsewhere, too, each time that they are finished, and when one is rolled back. */
export function publishingAfter(sink: Sink, after: After, warn: (message: string) => void): Sink {
  /** A run that replaces all rows of a table may be replaced, or rolled back. */
  const isShown = async ({ runId, target }: Plan): Promise<boolean | undefined> =>
    replacedBy(target) === "all" ? (await sink.published("here")).at(-1)?.runId === runId : undefined;
  /** @param done what has been done @param next how readers get the rows there, too */
  const publish = async (run: RunSink, done: string, next: string): Promise<void> => {
    try {
      await after.publish(run, () => isShown(run.plan));
    } catch (error) {
      if (!(error instanceof JobError) || ![64, 75].includes(error.exitCode)) {
        throw error;
      }
      const first = error.hint === undefined ? "" : `${error.hint}, then `;
      throw reworded(error, { hint: `${done}; ${after.place} is not yet: ${first}${next}` });
    }
  };

  const tellErased = (): void => warn(`rows that were erased stay in ${after.place} until they expire`);

  const { table } = sink;
  return {
    ...sink,
    get planTarget() {
      return sink.planTarget; // another one, as `ledger`, when a table is created
    },
    get ledger() {
      return sink.ledger;
    },
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
          if (end === "published") {
            const next = "run the same command again, which needs neither model nor input";
            await publish(run, `run ${run.plan.runId} is published`, next);
            if (run.plan.erasure !== undefined) {
              tellErased();
            }
          }
          return end;
        },
      };
    },
    async openKeyedRows(plan, key) {
      const own = await sink.openKeyedRows(plan, key); // an erasure reaches a table at once
      const { base, number } = splitRunId(plan.runId);
      const stored = own === undefined ? await sink.find(base, number) : undefined;
      return stored === undefined ? own : await after.openKeyedRows(stored, key);
    },
    table: table && {
      ...table,
      async erase(request) {
        const erased = await table.erase(request);
        if (!request.dryRun && request.found.size > 0) {
          tellErased();
        }
        return erased;
      },
      async rollBack() {
        const rolledBack = await table.rollBack();
        const { base, number } = splitRunId((rolledBack.restored?.runId ?? "") as RunId);
        const stored = rolledBack.restored && (await sink.find(base, number));
        if (stored === undefined) {
          warn(`${after.place} still has run ${rolledBack.undone.runId}, until it expires`);
        } else {
          const { runId, params } = stored.plan;
          const given = paramTexts(params).map((text) => ` --param ${shellWord(text)}`);
          const next = `infer-batch run${given.join("")}, with the spec`;
          await publish(await sink.open(stored), `the table has the rows of run ${runId} again`, next);
        }
        return rolledBack;
      },
    },
  };
}
