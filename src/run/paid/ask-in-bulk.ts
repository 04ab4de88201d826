import { blankRows } from "../../columnar/blank-rows.js";
import type { NamedTensor, Tensor } from "../../columnar/tensor.js";
import type { BulkAsking, BulkRowState, PaidEngine } from "../../engine/paid-engine.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { SpanRange } from "../../plan/worker-shares.js";
import { spanCount, spansOf } from "../../plan/spans.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import type { RunSink, StoredPlan } from "../../sink/port.js";
import type { Source } from "../../storage/port.js";
import { openReuse } from "../reusing/open-reuse.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";

/** Begins to ask in bulk, if the spec says so: takes up what earlier attempts have asked for. */
export async function beginBulk(
  { worker, log }: Pick<JobContext, "worker" | "log">,
  { plan: { runId }, planId }: StoredPlan,
  { bulk }: Pick<PaidEngine, "bulk">,
): Promise<void> {
  await bulk?.begin({ runId, planId, log: (message) => log.info(message) }, worker);
}

/** The spans whose rows this worker sends, or waits for: of several workers, the first one sends the rows of all. */
export function bulkShare(
  { worker }: Pick<JobContext, "worker">,
  { plan }: Pick<StoredPlan, "plan">,
  { engine: { paid }, share }: { readonly engine: Pick<Engine, "paid">; readonly share: SpanRange },
): SpanRange {
  return paid?.bulk !== undefined && worker.index === 0 ? { from: 0, to: spanCount(plan) } : share;
}

export interface BulkRows {
  readonly stored: StoredPlan;
  readonly run: Pick<RunSink, "committed" | "rejectedRows">;
  readonly engine: Engine;
  readonly decoder: Decoder;
  readonly source: Source;
  /** The spans whose rows need answers. */
  readonly share: SpanRange;
}

/**
 * Asks in bulk for all pending rows of a share, pass by pass until each has its answer: they are scored from what is
 * kept then. Does nothing where rows are asked one by one.
 * @throws JobError those of `BulkPass`
 */
export async function askInBulk(context: JobContext, rows: BulkRows): Promise<void> {
  const { engine } = rows;
  const { bulk } = engine.paid ?? {};
  if (bulk === undefined) {
    return;
  }
  while (await passOver(context, rows, bulk)) {
    context.signal.throwIfAborted();
  }
}

async function passOver(
  given: JobContext,
  { stored: { plan }, run, engine, decoder, source, share }: BulkRows,
  bulk: BulkAsking,
): Promise<boolean> {
  const context = { ...given, source };
  const pass = bulk.pass();
  const reuse = await openReuse(context, { plan, run, share });
  const adding: Engine = {
    ...engine,
    concurrency: 1, // rows come in their order
    async run({ inputs, outputs }) {
      await pass.add(inputs);
      return { kind: "done", outputs: blankOutputs(engine, outputs), ms: 0, inputs };
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const ranges = pendingRanges(spansOf(plan), run.committed, share);
  // A row that is bad before it is asked ends the run before anything is paid for, if the spec says so.
  const rows = { ranges, reuse, rejectedRows: run.rejectedRows };
  await scoreWithoutPublishing(context, { plan, engine: adding, decoder, ...rows }, () => undefined);
  return await pass.end();
}

/** Returns placeholder values in place of an answer. */
export function blankOutputs({ signature }: Engine, names: readonly string[], rows = 1): readonly Tensor[] {
  const blank = blankRows(signature.outputs, rows) ?? [];
  return names.flatMap((name) => blank.find((output) => output.name === name) ?? []);
}

export interface SampleInBulk {
  /** The inputs of each row. */
  readonly rows: readonly (readonly NamedTensor[])[];
  /** As many valid answers are enough. */
  readonly least: number;
}

/**
 * Asks in bulk for rows of a sample, pass by pass, until enough answers are valid or no row is open: a few rows that have
 * no answer yet are not worth another day. Returns the rows that are not open; all, where rows are asked one by one.
 * @throws JobError those of `BulkPass`
 */
export async function askSampleInBulk(
  { signal }: Pick<JobContext, "signal">,
  { bulk }: Pick<PaidEngine, "bulk">,
  { rows, least }: SampleInBulk,
): Promise<SampleInBulk["rows"]> {
  if (bulk === undefined) {
    return rows;
  }
  const inState = (state: BulkRowState): SampleInBulk["rows"] =>
    rows.filter((inputs) => bulk.stateOf(inputs) === state);
  for (let isMore = true; isMore && inState("valid").length < Math.max(1, least); ) {
    signal.throwIfAborted();
    const pass = bulk.pass();
    for (const inputs of rows) {
      await pass.add(inputs);
    }
    isMore = await pass.end();
  }
  const open = new Set(inState("open"));
  return rows.filter((inputs) => !open.has(inputs));
}
