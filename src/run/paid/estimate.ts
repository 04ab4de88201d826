import { type BulkAsking, costOf } from "../../engine/paid-engine.js";
import { asksFirstRows } from "./ask-first-rows.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan } from "../../plan/plan.js";
import type { PlanEstimate } from "../../report/spending/estimate-text.js";
import type { JobContext } from "../../scoring/context.js";
import type { RejectedRows } from "../rejects/rejected-rows.js";
import { sampleRows } from "./sample-rows.js";

/** Rows whose prompts are measured. */
const measuredRows = 200;
/** UTF-8 bytes of a token: English prose has about four, code and other languages have fewer. */
const bytesPerToken = 4;
/** Estimates by bytes are wrong by up to this share of themselves. */
const error = 0.4;

interface EstimateOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** The rows that are asked alone; undefined: all are. */
  readonly rejected?: RejectedRows | undefined;
}

/**
 * Estimates what a run will take, from the prompts of some rows that are spread over its table. Nothing is asked.
 * undefined: predictions are free.
 */
export async function estimateRun(
  context: JobContext,
  { plan, engine, decoder, rejected }: EstimateOptions,
): Promise<PlanEstimate | undefined> {
  const { paid } = engine;
  const all = rejected?.count ?? plan.input.rows;
  if (paid === undefined || all === 0) {
    return undefined;
  }
  const ranges = rejected?.ranges() ?? [{ rowStart: 0, rowEnd: plan.input.rows }];
  const tools = { plan, engine, decoder };
  const { rows, read } = await sampleRows(context, { ...tools, ranges, count: measuredRows, isScored: rejected?.has });
  const bytes = rows.map((inputs) => paid.promptBytes(inputs)).reduce((sum, size) => sum + size, 0);
  const requests = Math.round((all * rows.length) / Math.max(1, read));
  const perPrompt = bytes / Math.max(1, rows.length) / bytesPerToken + paid.templateTokens;
  const prompt = Math.round(perPrompt * requests);
  const most = paid.mostCompletionTokens;
  const completion = most === undefined ? undefined : most * requests;
  const areFirst = asksFirstRows(plan, all);
  const { price } = paid.spending;
  const cost =
    price === undefined || completion === undefined ? undefined : costOf({ prompt, cached: 0, completion }, price);
  return {
    requests,
    batches: paid.bulk === undefined ? undefined : batchesOf(paid.bulk, requests, areFirst),
    promptTokens: prompt,
    error,
    mostCompletionTokens: completion,
    mostCost: cost,
    limits: paid.limits,
  };
}

/** Batches of full files, and one of the rows that are asked first. */
function batchesOf({ mostRequests }: Pick<BulkAsking, "mostRequests">, requests: number, areFirst: boolean): number {
  return Math.ceil(requests / mostRequests) + (areFirst ? 1 : 0);
}
