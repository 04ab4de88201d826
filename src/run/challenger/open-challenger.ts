import { shareProjection } from "../../binding/shared-projection.js";
import { scoredColumns } from "../../binding/contract.js";
import { type AgreementPlan, planAgreement } from "../../checks/agreement/span-agreement.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel } from "../../models/port.js";
import type { Plan, PlannedChallenger } from "../../plan/plan.js";
import { absentChallenger, createChallenger } from "../../scoring/challenger/challenger.js";
import type { Challenger } from "../../scoring/challenger/port.js";
import type { JobContext } from "../../scoring/context.js";
import { keyColumns } from "../../scoring/features.js";
import { measureEngine } from "../../scoring/warm-up.js";
import { JobError, messageOf } from "../../util/errors.js";
import { openKeeper } from "./keep-predictions.js";
import { loadEngine } from "../loading.js";
import { openPinnedModel, plannedModel, tokenizerDifference, tokenizersOf } from "../model.js";
import { challengerContext, forChallenger } from "./challenger-context.js";

export interface ChallengerNeed {
  /** Rows that this attempt will score. */
  readonly rows: number;
  /** The champion's engine, whose threads score with both models if they can. */
  readonly champion?: Engine | undefined;
}

/**
 * Opens the challenger that a plan pins; undefined: the plan has none. One that cannot be reached scores no row in this
 * attempt.
 * @throws JobError MODEL_CHANGED
 */
export async function openChallenger(
  context: JobContext,
  plan: Plan,
  { rows, champion }: ChallengerNeed,
): Promise<(Challenger & AsyncDisposable) | undefined> {
  const { challenger: planned } = plan;
  const own = challengerContext(context);
  if (planned === undefined || own === undefined) {
    return undefined;
  }
  try {
    return await forChallenger(() => openPlanned(context, { plan, planned, own }, { rows, champion }));
  } catch (error) {
    requireAway(context, error);
    context.log.warn(`the challenger ${planned.uri} scores no row in this attempt: ${messageOf(error)}`);
    const absent = absentChallenger(shareProjection(plan.contract, planned.contract));
    return { ...absent, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
}

interface PlannedTools {
  readonly plan: Plan;
  readonly planned: PlannedChallenger;
  readonly own: JobContext;
}

async function openPlanned(
  context: JobContext,
  { plan, planned, own }: PlannedTools,
  { rows, champion }: ChallengerNeed,
): Promise<Challenger & AsyncDisposable> {
  const { model } = await findPlanned(own, planned);
  const inputBytes = plan.input.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const loading = loadEngine(own, model, { inputBytes, champion });
  try {
    const engine = await loading.engine;
    const { contract } = planned;
    const measured = await measureEngine(own, { ...plan, contract, model: planned }, { engine, rows });
    const keeper = await openKeeper(context, plan, engine.provider);
    const opened = createChallenger(context, {
      name: model.name,
      contract,
      engine,
      ...measured,
      shared: shareProjection(plan.contract, contract),
      agreement: agreementPlanOf(plan, planned),
      keys: shownKeys(context, plan),
      keeper,
    });
    return {
      ...opened,
      async [Symbol.asyncDispose]() {
        await keeper?.[Symbol.asyncDispose]();
        await loading[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    await loading[Symbol.asyncDispose]();
    throw error;
  }
}

/** Throws an error again, unless it says that the server or store of the challenger cannot be reached now. */
function requireAway({ signal }: Pick<JobContext, "signal">, error: unknown): void {
  signal.throwIfAborted();
  if (!(error instanceof JobError) || error.exitCode !== 75) {
    throw error;
  }
}

/**
 * Checks that the challenger of a plan is still what it was, before anything is scored. One that cannot be reached passes:
 * `openChallenger` warns of it.
 * @throws JobError MODEL_CHANGED
 */
export async function requireChallenger(context: JobContext, { challenger: planned }: Plan): Promise<void> {
  const own = challengerContext(context);
  if (planned !== undefined && own !== undefined) {
    try {
      await forChallenger(() => findPlanned(own, planned));
    } catch (error) {
      requireAway(context, error);
    }
  }
}

async function findPlanned(own: JobContext, planned: PlannedChallenger): Promise<FoundModel> {
  const found = await openPinnedModel(own, plannedModel(own, { model: planned }));
  if (found.model.sha256 !== planned.sha256) {
    throw new JobError(
      "MODEL_CHANGED",
      `comparing the challenger ${planned.uri} with the plan of this unfinished run: ${
        "served" in found.model
          ? "its inputs, outputs or requests are not those planned"
          : `its sha256 is ${found.model.sha256}, planned ${planned.sha256}`
      }`,
      { hint: "put back the challenger that was planned and run again; or abandon this run with --new-run" },
    );
  }
  const changed = tokenizerDifference(planned, tokenizersOf(found.model));
  if (changed !== undefined) {
    throw new JobError(
      "MODEL_CHANGED",
      `comparing tokenizer ${changed.uri} of the challenger with the plan of this unfinished run: ${changed.difference}`,
      { hint: "put back the tokenizer that was planned and run again; or abandon this run with --new-run" },
    );
  }
  return found;
}

/** What is compared, and how much is stored of it. It depends on the plan alone. */
export function agreementPlanOf(
  { contract, input: { rows }, commitRows: spanRows }: Plan,
  { contract: challengers, tolerance }: PlannedChallenger,
): AgreementPlan {
  const predicted = scoredColumns({ ...contract, passthrough: [] });
  return planAgreement(predicted, scoredColumns(challengers), { rows, spanRows, tolerance });
}

/** Copied columns that are shown with a row. */
const mostKeys = 3;

/** The columns that tell whose row it is: those that the spec calls keys, or the first ones that are copied. */
function shownKeys({ spec }: JobContext, { contract }: Plan): string[] {
  const copied = contract.passthrough.map(({ column }) => column);
  const keys = keyColumns(spec);
  const named = copied.filter((column) => keys.has(column));
  return (named.length > 0 ? named : copied).slice(0, mostKeys);
}
