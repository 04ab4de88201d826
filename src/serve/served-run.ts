import type { Models, OpenedJob } from "../flow/opened-job.js";
import type { Engine } from "../models/engine.js";
import { JobError, orError } from "../base/errors.js";
import { checkGolden } from "../run/checks.js";
import { openPinnedModel, plannedModel } from "../run/model.js";
import type { Plan } from "../run/plan/plan.js";
import { type Batcher, createBatcher } from "./batcher.js";
import { openScorer, type RowScorer } from "./scorer.js";

/** A model with the bindings of a run, warm. */
export interface ServedModel extends AsyncDisposable {
  readonly plan: Plan;
  readonly scorer: RowScorer;
  readonly batcher: Batcher;
}

/** A published run with all that answers for it. */
export interface ServedRun extends ServedModel {
  /** Does work with the run, which is not closed before the work ends. */
  use<T>(work: () => Promise<T>): Promise<T>;
}

/**
 * Opens what answers for a published run, and checks its model with the golden rows. Disposing waits for those who use it.
 * @param opened the job with the params of the run, which is closed with it
 * @throws JobError MODEL_CHANGED if its model is gone, GOLDEN_MISMATCH
 */
export async function openServedRun(opened: OpenedJob & AsyncDisposable, plan: Plan): Promise<ServedRun> {
  const closing: AsyncDisposable[] = [opened];
  const close = async (): Promise<void> => {
    for (const part of closing.toReversed()) {
      await part[Symbol.asyncDispose]();
    }
  };
  try {
    const model = await openServedModel(opened, plan);
    closing.push(model);
    let users = 0;
    let onUnused: (() => void) | undefined;
    return {
      ...model,
      async use(work) {
        users += 1;
        try {
          return await work();
        } finally {
          users -= 1;
          if (users === 0) {
            onUnused?.();
          }
        }
      },
      async [Symbol.asyncDispose]() {
        if (users > 0) {
          await new Promise<void>((resolve) => {
            onUnused = resolve;
          });
        }
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function openServedModel(opened: OpenedJob, plan: Plan): Promise<ServedModel> {
  const { serve } = opened.job.spec;
  const engine = await openPlannedEngine(opened, plan);
  try {
    await checkGolden(opened, { plan, engine });
    const { models, attempt } = opened;
    const scorer = await openScorer(opened, { plan, engine, models, batchRows: serve.batch.rows });
    const batcher = createBatcher({ scorer, ...serve, nowMs: attempt.nowMs });
    return { plan, scorer, batcher, [Symbol.asyncDispose]: () => scorer[Symbol.asyncDispose]() };
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
}

/** Another file, or none, is where the model of the run was. */
const isGone = ({ code }: JobError): boolean =>
  code === "FILE_MISSING" || code === "MODEL_PIN" || code === "MODEL_CHANGED";

/** Opens the model of a run. A copy is kept on this machine, which a rollback may need when the file is another one. */
async function openPlannedEngine(
  { job, models }: { readonly job: OpenedJob["job"]; readonly models: Models },
  plan: Plan,
): Promise<Engine> {
  const need = { inputBytes: Number.POSITIVE_INFINITY };
  const planned = plannedModel(job.spec, plan);
  const found = planned && (await orError(() => openPinnedModel(job, models, planned), isGone));
  if (found !== undefined && !(found instanceof JobError) && found.model.sha256 === plan.model.sha256) {
    await models.earlierModels.keep(plan.model).catch(() => undefined);
    return await models.openEngine(found.model, need);
  }
  const earlier = await models.earlierModels.find(plan.model);
  if (earlier === undefined) {
    const { uri, sha256 } = plan.model;
    const hint = "put the model of that run back, or run the job again with the new one";
    throw new JobError("MODEL_CHANGED", `serving run ${plan.runId}: ${uri} no longer has sha256 ${sha256}`, { hint });
  }
  return await earlier.openEngine(earlier.model, need);
}
