import type { OpenedJob } from "../flow/opened-job.js";
import type { Engine } from "../models/engine.js";
import { JobError, messageOf, orError } from "../base/errors.js";
import { openSecondJob, openSecondRun } from "../run/second-job.js";
import { checkGolden } from "../run/checks.js";
import { openPinnedModel, plannedModel } from "../run/find-model.js";
import type { Plan } from "../run/plan/plan.js";
import { type Batcher, createBatcher } from "./batcher.js";
import type { NamedColumn } from "../columns/types.js";
import { openKeyedRows } from "./lookup.js";
import type { KeyedRows } from "../targets/target.js";
import { openScorer, type RowScorer } from "./scorer.js";

/** A model with the bindings of a run, warm. */
export interface LoadedModel extends AsyncDisposable {
  readonly plan: Plan;
  readonly scorer: RowScorer;
  readonly batcher: Batcher;
}

/** A published run with all that answers for it. */
export interface ServedRun extends LoadedModel {
  /** undefined: the spec has no `serve.key`. */
  readonly rowsByKey: RowsByKey | undefined;
  /** Answers for a share of the keys; undefined: the spec has no `serve.canary`, or the run no challenger. */
  readonly canary: LoadedModel | undefined;
  /** Does work with the run, which is not closed before the work ends. */
  use<T>(work: () => Promise<T>): Promise<T>;
}

interface RowsByKey extends AsyncDisposable {
  /** The columns of the key: where they are in a request, and their names in the output. */
  readonly columns: readonly (Pick<NamedColumn, "name" | "type"> & { readonly path: readonly string[] })[];
  readonly lookUp: KeyedRows["lookUp"];
  /** Rows that are being looked up. */
  waiting: number;
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
    const rowsByKey = await openRowsByKey(opened, plan);
    closing.push(...(rowsByKey === undefined ? [] : [rowsByKey]));
    const canary = await openCanary(opened, plan);
    closing.push(...(canary === undefined ? [] : [canary]));
    const inUse = new Set<Promise<unknown>>();
    return {
      ...model,
      rowsByKey,
      canary,
      async use(work) {
        const working = work();
        inUse.add(working);
        try {
          return await working;
        } finally {
          inUse.delete(working);
        }
      },
      async [Symbol.asyncDispose]() {
        await Promise.allSettled(inUse);
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Opens the challenger of a run. Without it, the model of the run answers for all keys. */
async function openCanary(opened: OpenedJob, plan: Plan): Promise<LoadedModel | undefined> {
  if (opened.job.spec.serve.canary === 0) {
    return undefined;
  }
  try {
    await using second = await openSecondJob(opened);
    const { plan: own } = await openSecondRun(second, plan);
    return await openServedModel(second, own);
  } catch (error) {
    opened.reporter.log.warn(`run ${plan.runId} is served without its challenger: ${messageOf(error)}`);
    return undefined;
  }
}

/** @throws JobError USAGE for a key that the output of the run has not */
async function openRowsByKey(opened: OpenedJob, plan: Plan): Promise<RowsByKey | undefined> {
  const { key } = opened.job.spec.serve;
  if (key === undefined) {
    return undefined;
  }
  const columns = key.map((name) => {
    const source = plan.contract.passthrough.find(({ column }) => column === name)?.source;
    if (source === undefined || source.computed === true) {
      throw new JobError("USAGE", `serving run ${plan.runId}: no column ${name} is carried from its input`, {
        hint: "name columns of output.columns that input.path has in serve.key; after a change of them, run the job again",
      });
    }
    return { name, type: source.type, path: source.path };
  });
  return { columns, ...(await openKeyedRows(opened, plan, key)), waiting: 0 };
}

async function openServedModel(opened: OpenedJob, plan: Plan): Promise<LoadedModel> {
  const engine = await openPlannedEngine(opened, plan);
  try {
    await checkGolden(opened, { plan, engine });
    const scorer = await openScorer(opened, plan, engine);
    const batcher = createBatcher({ scorer, ...opened.job.spec.serve, nowMs: opened.attempt.nowMs });
    return { plan, scorer, batcher, [Symbol.asyncDispose]: () => batcher[Symbol.asyncDispose]() };
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
}

/** Another file, or none, is where the model of the run was. */
const isGone = ({ code }: JobError): boolean =>
  code === "FILE_MISSING" || code === "MODEL_PIN" || code === "MODEL_CHANGED";

/** Opens the model of a run. A copy is kept on this machine, which a rollback may need when the file is another one. */
async function openPlannedEngine({ job, models }: OpenedJob, plan: Plan): Promise<Engine> {
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
