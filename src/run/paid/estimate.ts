import { costOf } from "../../engine/paid-engine.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan } from "../../plan/plan.js";
import type { PlanEstimate } from "../../report/spending/estimate-text.js";
import type { JobContext } from "../../scoring/context.js";
import { sampleRows } from "./sample-rows.js";

/** Rows whose prompts are measured. */
const measuredRows = 200;
/** UTF-8 bytes of a token: English prose has about four, code and other languages have fewer. */
const bytesPerToken = 4;
/** Estimates by bytes are wrong by up to this share of themselves. */
const error = 0.4;

/**
 * Estimates what a run will take, from the prompts of some rows that are spread over its table. Nothing is asked.
 * undefined: predictions are free.
 */
export async function estimateRun(
  context: JobContext,
  { plan, engine, decoder }: { readonly plan: Plan; readonly engine: Engine; readonly decoder: Decoder },
): Promise<PlanEstimate | undefined> {
  const { paid } = engine;
  if (paid === undefined || plan.input.rows === 0) {
    return undefined;
  }
  const ranges = [{ rowStart: 0, rowEnd: plan.input.rows }];
  const { rows, read } = await sampleRows(context, { plan, engine, decoder, ranges, count: measuredRows });
  const bytes = rows.map((inputs) => paid.promptBytes(inputs)).reduce((sum, size) => sum + size, 0);
  const requests = Math.round((plan.input.rows * rows.length) / Math.max(1, read));
  const prompt = Math.round(((bytes / Math.max(1, rows.length)) * requests) / bytesPerToken);
  const most = paid.mostCompletionTokens;
  const completion = most === undefined ? undefined : most * requests;
  const { price } = paid.spending;
  const cost =
    price === undefined || completion === undefined ? undefined : costOf({ prompt, cached: 0, completion }, price);
  return {
    requests,
    batches: paid.bulk === undefined ? undefined : Math.ceil(requests / paid.bulk.mostRequests),
    promptTokens: prompt,
    error,
    mostCompletionTokens: completion,
    mostCost: cost,
    limits: paid.limits,
  };
}
