import { type ColumnRef, type Contract, featureColumns } from "../../binding/contract.js";
import { jsonOf } from "../../columnar/json-text.js";
import type { OutputRows, RejectedRow } from "../../columnar/types.js";
import { runIdOf } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import type { ScoredRows } from "../../report/preview-text.js";
import type { JobContext } from "../../scoring/context.js";
import { wholeInput, warnOfUnmatched } from "../planning/input.js";
import { loadEngine } from "../loading.js";
import { openPinnedModel } from "../model.js";
import { planRun } from "../planning/planning.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";

export interface PreviewOptions {
  /** The most rows to score. */
  readonly limit: number;
  /** A condition in addition to `input.where`. */
  readonly where?: string | undefined;
  /** The most features to show. */
  readonly features: number;
}

/** The first rows of a job with their predictions. */
export interface PreviewedRows extends ScoredRows {
  /** The rows that cannot be scored, among the rows that were read. */
  readonly rejects: readonly RejectedRow[];
}

/** The number of rows that are read at once if a condition may leave out most of them. */
const filteredSpanRows = 16_384;

/**
 * Scores the first rows of the input as a run does, and writes nothing to the target.
 * @throws JobError the errors of planning and scoring
 */
export async function previewRows(given: JobContext, options: PreviewOptions): Promise<PreviewedRows> {
  const context = narrowed(given, options.where);
  const { spec, sha256 } = context;
  const listing = await wholeInput(context);
  warnOfUnmatched(context, listing);
  const resolved = await openPinnedModel(context);
  await using loading = loadEngine(context, resolved.model, { inputBytes: 0 });
  await using decoder = await context.openDecoder(listing.folders);
  const runId = runIdOf(spec.name, spec.params, sha256);
  const { engine } = loading;
  const planned = await planRun(context, { runId, listed: listing.shards, decoder, resolved, engine });
  const { contract, features } = withFeatures(planned.contract, options.features);
  const isPaid = spec.model.prompt !== undefined;
  const commitRows =
    spec.input.where === undefined || isPaid ? options.limit : Math.max(options.limit, filteredSpanRows);
  const plan: Plan = { ...planned, contract, commitRows };
  const spans: Spans = new Map();
  const count = spanCount(plan);
  // Each step reads twice as many spans, because rows that match a condition may be anywhere.
  for (
    let from = 0, to = 1;
    from < count && rowsIn(spans) < options.limit;
    from = to, to = Math.min(count, 2 * to + 1)
  ) {
    await scoreWithoutPublishing(
      context,
      { plan, engine: await engine, decoder, share: { from, to } },
      ({ index }, output) => {
        spans.set(index, { rows: rowsOf(output.rows, options.limit), rejects: output.rejects });
      },
    );
  }
  const found = [...spans].toSorted(([one], [other]) => one - other).map(([, span]) => span);
  return {
    carried: planned.contract.passthrough.map(({ column }) => column),
    features: features.map(({ name }) => name),
    predictions: contract.outputs.map(({ column }) => column),
    featureCount: featureColumns(contract).length,
    rows: found.flatMap(({ rows }) => rows).slice(0, options.limit),
    rejects: found.flatMap(({ rejects }) => rejects),
  };
}

type Spans = Map<number, { readonly rows: readonly (readonly string[])[]; readonly rejects: readonly RejectedRow[] }>;

/** Counts the scored rows and the rejected rows. */
function rowsIn(spans: Spans): number {
  return [...spans.values()].reduce((sum, { rows, rejects }) => sum + rows.length + rejects.length, 0);
}

/** Returns the job with the second condition, without checks. */
function narrowed(context: JobContext, where: string | undefined): JobContext {
  const { spec } = context;
  const own = spec.input.where;
  const joined = where === undefined || own === undefined ? (where ?? own) : `(${own}\n) and (${where}\n)`;
  const option = own === undefined ? "--where" : "--where and input.where";
  return {
    ...context,
    spec: { ...spec, checks: undefined, input: { ...spec.input, where: joined } },
    where: (path) => (where !== undefined && path.join(".") === "input.where" ? option : context.where(path)),
  };
}

/** Adds features to the carried columns, with names that no output column can have. */
function withFeatures(
  contract: Contract,
  most: number,
): { readonly contract: Contract; readonly features: readonly ColumnRef[] } {
  const carried = new Set(contract.passthrough.map(({ source }) => source.path.join(".")));
  const features = featureColumns(contract)
    .filter(({ path }) => !carried.has(path.join(".")))
    .slice(0, most);
  const passthrough = features.map((source) => ({ column: `feature ${source.name}`, source }));
  return {
    contract: {
      ...contract,
      lineage: undefined,
      reuse: undefined,
      passthrough: [...contract.passthrough, ...passthrough],
    },
    features,
  };
}

function rowsOf({ columns, rowCount }: OutputRows, most: number): string[][] {
  return Array.from({ length: Math.min(rowCount, most) }, (_, row) =>
    columns.map(({ type, column }) => jsonOf(type, column, row)),
  );
}
