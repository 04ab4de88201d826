import { costOf, type CountTokens, type Engine, type PaidEngine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan } from "../../plan/plan.js";
import type { PlanEstimate } from "../../report/plan-text.js";
import { atKey, type JobContext, type ScoringContext } from "../../scoring/context.js";
import { orFailure } from "../previewing/or-failure.js";
import { type RowSample, type SampledPlace, sampleRows } from "./sample-rows.js";
import { type SampledSum, samplingError } from "../../util/sampling.js";

/** Rows whose prompts are measured. */
const measuredRows = 200;
/** UTF-8 bytes of a token: English prose has about four, code and other languages have fewer. */
const bytesPerToken = 4;
/** Estimates by bytes are wrong by up to this share of themselves. */
const errorOfBytes = 0.4;

interface EstimateOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

/** What a run will take. */
export interface RunEstimate {
  /** undefined: predictions are free. */
  readonly estimate: PlanEstimate | undefined;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Estimates what a run will take, from the prompts of some rows that are spread over its table. Nothing is asked. Where
 * the tokenizer of the spec cannot be loaded, which no run needs, bytes are counted.
 */
export async function estimateRun(
  context: JobContext,
  { plan, engine, decoder }: EstimateOptions,
): Promise<RunEstimate> {
  const { paid } = engine;
  const all = plan.input.rows;
  if (paid === undefined || all === 0) {
    return { estimate: undefined, untried: [] };
  }
  const ranges = [{ rowStart: 0, rowEnd: plan.input.rows }];
  const tools = { plan, engine, decoder };
  const sample = await sampleRows(context, { ...tools, ranges, count: measuredRows });
  const { rows, read, places } = sample;
  const found = await orFailure(context, () => openTokenCounter(context));
  const [count, untried] =
    found !== undefined && "failed" in found ? [undefined, [`tokens were not counted: ${found.failed}`]] : [found, []];
  const tokens = await tokensOf(paid, sample, count);
  const inTexts = tokens.reduce((sum, size) => sum + size, 0) / Math.max(1, rows.length);
  const requests = Math.round((all * rows.length) / Math.max(1, read));
  const prompt = Math.round((inTexts + paid.templateTokens) * requests);
  const tokenizer = count && context.spec.model.prompt?.tokenizer;
  const ofTokens = tokenizer === undefined ? errorOfBytes : paid.templateTokens / (inTexts + paid.templateTokens || 1);
  const most = paid.mostCompletionTokens;
  const completion = most === undefined ? undefined : most * requests;
  const { price } = paid.spending;
  const cost =
    price === undefined || completion === undefined ? undefined : costOf({ prompt, cached: 0, completion }, price);
  const estimate = {
    requests,
    promptTokens: prompt,
    error: ofTokens + samplingError(sumsOf(places, tokens), all),
    tokenizer,
    measuredRows: rows.length,
    templateTokens: paid.templateTokens,
    mostCompletionTokens: completion,
    mostCost: cost,
    limits: paid.limits,
  };
  return { estimate, untried };
}

/** The tokens of each place. @param tokens of each row that can be scored, in the order of the places */
function sumsOf(places: readonly SampledPlace[], tokens: readonly number[]): SampledSum[] {
  let from = 0;
  return places.map(({ read, rows }) => {
    const own = tokens.slice(from, from + rows);
    from += rows;
    return { read, sum: own.reduce((sum, size) => sum + size, 0) };
  });
}

/** The tokens of each row's texts: those that `count` counts, or one for every four bytes. */
async function tokensOf(paid: PaidEngine, { rows }: RowSample, count: CountTokens | undefined): Promise<number[]> {
  const texts = rows.map((inputs) => paid.promptTexts(inputs));
  const sizes =
    count === undefined
      ? texts.flat().map((text) => Buffer.byteLength(text) / bytesPerToken)
      : await count(texts.flat(), { withSpecial: paid.addsSpecialTokens });
  let from = 0;
  return texts.map((own) => {
    const sum = sizes.slice(from, from + own.length).reduce((one, other) => one + other, 0);
    from += own.length;
    return sum;
  });
}

/** Loads the tokenizer that the spec names for estimates; undefined: it names none. @throws JobError of its file */
export async function openTokenCounter(context: ScoringContext): Promise<CountTokens | undefined> {
  const { loadTokenCounter } = context;
  return loadTokenCounter && (await atKey(context, ["model", "prompt", "tokenizer"], loadTokenCounter));
}
