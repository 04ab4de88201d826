import type { JobSpec } from "../job/jobfile/job-spec.js";
import { type ColumnRef, type Contract, featureColumns } from "../models/binding/contract.js";
import type { OutputRows, RejectedRow } from "../columns/types.js";
import type { Plan } from "./plan/plan.js";
import { rowsOfSpans, spanCount } from "./plan/spans.js";
import type { Engine } from "../models/engine.js";
import type { Decoder } from "../formats/format.js";
import type { ShownRows } from "../report/preview-text.js";
import type { Job, OpenedJob } from "../flow/context.js";
import { warnOfUnmatched, wholeInput } from "./input.js";
import { loadEngine, openPinnedModel } from "./model.js";
import { planRun } from "./planning.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";
import { rangesOfRows } from "../flow/read.js";
import { jsonOf } from "../columns/value-text.js";
import { randomNumbers } from "../base/sampling.js";

interface PreviewOptions {
  /** The most rows to score. */
  readonly limit: number;
  /** A condition in addition to `input.where`. */
  readonly where?: string | undefined;
  /** The most features to show. */
  readonly features: number;
  /** Rows drawn at random in place of the first ones, in the order of the input. */
  readonly sample?: Sampling | undefined;
}

interface Sampling {
  /** The most rows to score. */
  readonly rows: number;
  readonly seed: number;
}

/** The first rows of a job with their predictions. */
export interface PreviewedRows extends ShownRows {
  /** The rows that cannot be scored, among the rows that were read. */
  readonly rejects: readonly RejectedRow[];
  /** How many rows of how many were drawn; undefined: the first rows were read. */
  readonly drawn: { readonly rows: number; readonly of: number } | undefined;
}

/** The number of rows that are read at once if a condition may leave out most of them. */
const filteredSpanRows = 16_384;
/** Where conditions leave out most rows, so many are drawn for a sample at most: each may cost a query of 11 ms. */
const mostDraws = 2000;
/** Of a large sample so many for each of its rows. */
const drawsPerRow = 4;

/**
 * Scores the first rows of the input as a run does, and writes nothing to the target.
 * @throws JobError the errors of planning and scoring
 */
export async function previewRows(opened: OpenedJob, options: PreviewOptions): Promise<PreviewedRows> {
  const job = narrowed(opened.job, options.where);
  const previewed = { ...opened, job };
  const { input, models } = opened;
  const listing = await wholeInput(job, input.source);
  warnOfUnmatched(opened.reporter.log, listing);
  const resolved = await openPinnedModel(job, models);
  await using loading = loadEngine(models, resolved.model, { inputBytes: 0 });
  await using decoder = await input.openDecoder(listing.folders);
  const { engine } = loading;
  const { plan: planned } = await planRun(previewed, {
    runId: job.base,
    listed: listing.shards,
    table: listing.table,
    decoder,
    resolved,
    engine,
  });
  const { contract, features } = withFeatures(planned.contract, options.features);
  const plan: Plan = { ...planned, contract };
  const tools = { plan, engine: await engine, decoder };
  const { spans, limit, drawn } =
    options.sample === undefined
      ? { spans: await firstRows(previewed, tools, options.limit), limit: options.limit, drawn: undefined }
      : await sampledRows(previewed, tools, options.sample);
  const found = [...spans].toSorted(([one], [other]) => one - other).map(([, span]) => span);
  return {
    carried: planned.contract.passthrough.map(({ column }) => column),
    features: features.map(({ name }) => name),
    predictions: contract.outputs.map(({ column }) => column),
    featureCount: featureColumns(contract).length,
    rows: found.flatMap(({ rows }) => rows).slice(0, limit),
    rejects: found.flatMap(({ rejects }) => rejects),
    drawn,
  };
}

interface PreviewTools {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

async function firstRows(opened: OpenedJob, tools: PreviewTools, limit: number): Promise<Spans> {
  const { job } = opened;
  const { where } = job.spec.input;
  const commitRows = where === undefined || isPaid(job.spec) ? limit : Math.max(limit, filteredSpanRows);
  const plan = { ...tools.plan, commitRows };
  const spans: Spans = new Map();
  const count = spanCount(plan);
  // Each step reads twice as many spans, because rows that match a condition may be anywhere.
  for (let from = 0, to = 1; from < count && rowsIn(spans) < limit; from = to, to = Math.min(count, 2 * to + 1)) {
    const ranges = [rowsOfSpans(plan, { from, to })];
    await scoreWithoutPublishing(opened, { ...tools, plan, ranges }, ({ index }, output) => {
      spans.set(index, { rows: rowsOf(output.rows, limit), rejects: output.rejects });
    });
  }
  return spans;
}

/**
 * Scores rows that are drawn one by one from the whole input, each with the same chance. Rows that a condition leaves
 * out are replaced by others, until the sample is complete or too many were drawn: what is read has a limit that does
 * not depend on the size of the input.
 */
async function sampledRows(
  opened: OpenedJob,
  tools: PreviewTools,
  { rows: wanted, seed }: Sampling,
): Promise<{ readonly spans: Spans; readonly limit: number; readonly drawn: PreviewedRows["drawn"] }> {
  const { job } = opened;
  const plan = { ...tools.plan, commitRows: 1 };
  const { rows: all } = plan.input;
  const draw = drawRows(all, seed);
  const most = Math.min(all, Math.max(mostDraws, drawsPerRow * wanted));
  // A condition takes a query for each range of rows: a small input is read whole.
  const readsAll = job.spec.input.where !== undefined && all <= filteredSpanRows && !isPaid(job.spec);
  const spans: Spans = new Map();
  for (let found = 0; found < wanted && draw.rows.length < most; found = rowsIn(spans)) {
    const { length } = draw.rows;
    const missing = wanted - found;
    const likely = isPaid(job.spec) || length === 0 ? missing : Math.ceil((missing * (length + 1)) / (found + 1));
    const drawn = draw.more(readsAll ? all : Math.min(likely, most - length));
    const ranges = rangesOfRows(drawn);
    await scoreWithoutPublishing(opened, { ...tools, plan, ranges }, ({ index }, { rows, rejects }) => {
      if (rows.rowCount + rejects.length > 0) {
        spans.set(index, { rows: rowsOf(rows, 1), rejects });
      }
    });
  }
  // In the order of the draw: the first ones in the order of the input would rather be rows from its beginning.
  const kept = draw.rows.filter((row) => spans.has(row)).slice(0, wanted);
  const sample: Spans = new Map(kept.map((row) => [row, spans.get(row) ?? { rows: [], rejects: [] }]));
  return { spans: sample, limit: wanted, drawn: { rows: draw.rows.length, of: all } };
}

/** Whether predictions cost money. */
function isPaid(spec: JobSpec): boolean {
  return spec.model.prompt !== undefined;
}

type Spans = Map<number, { readonly rows: readonly (readonly string[])[]; readonly rejects: readonly RejectedRow[] }>;

/** Counts the scored rows and the rejected rows. */
function rowsIn(spans: Spans): number {
  return [...spans.values()].reduce((sum, { rows, rejects }) => sum + rows.length + rejects.length, 0);
}

/** Returns the job with the second condition, without checks. */
function narrowed(job: Job, where: string | undefined): Job {
  const { spec } = job;
  const own = spec.input.where;
  const joined = where === undefined || own === undefined ? (where ?? own) : `(${own}\n) and (${where}\n)`;
  const option = own === undefined ? "--where" : "--where and input.where";
  return {
    ...job,
    spec: { ...spec, checks: undefined, input: { ...spec.input, where: joined } },
    where: (path) => (where !== undefined && path.join(".") === "input.where" ? option : job.where(path)),
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

/** Draws rows of a table at random, each at most once, and each of those that are left with the same chance. */
interface RowDraw {
  /** All rows that were drawn, in the order of the draw. */
  readonly rows: readonly number[];
  /** Draws further rows, and returns them: fewer where the table has no more. */
  more(count: number): readonly number[];
}

/** @param all the number of rows of the table @param seed the same one draws the same rows @public so that tests call it */
export function drawRows(all: number, seed: number): RowDraw {
  const random = randomNumbers(seed);
  const rows: number[] = [];
  // A shuffle (Fisher and Yates) that stores only the places that were swapped: a table may have 100 million rows.
  const swapped = new Map<number, number>();
  return {
    rows,
    more(count) {
      const from = rows.length;
      for (let at = from; at < Math.min(all, from + count); at += 1) {
        const other = at + Math.floor(random() * (all - at));
        rows.push(swapped.get(other) ?? other);
        swapped.set(other, swapped.get(at) ?? at);
      }
      return rows.slice(from);
    },
  };
}
