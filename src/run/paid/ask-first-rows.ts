import { outputTensors } from "../../binding/contract.js";
import { costOf, type PaidEngine } from "../../engine/paid.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { SpanRange } from "../../plan/share.js";
import type { Plan } from "../../plan/plan.js";
import { spansOf } from "../../plan/spans.js";
import { count, showCount } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/feed.js";
import { allowedRejects } from "../../scoring/reject-budget.js";
import type { RunSink } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";
import { askSampleInBulk } from "./ask-in-bulk.js";
import { sampleRows } from "./sample-rows.js";

/** Rows that are asked before all others. */
const firstRows = 200;
/** The share of them whose answers must be valid. */
const leastValid = 0.95;

interface FirstRows {
  readonly plan: Plan;
  readonly run: Pick<RunSink, "committed">;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** The spans of this worker. */
  readonly share: SpanRange;
}

/**
 * Asks a few rows, spread over those of this worker, before all others: a wrong prompt, or a table that is too dear,
 * shows for little money. Their answers are kept, and count.
 * @throws JobError FIRST_ROWS if too few answers are valid, BUDGET if all rows would exceed it
 */
export async function askFirstRows(
  context: JobContext,
  { plan, run, engine, decoder, share }: FirstRows,
): Promise<void> {
  const { paid } = engine;
  const ranges = pendingRanges(spansOf(plan), run.committed, share);
  const pending = ranges.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
  if (paid === undefined || pending <= firstRows || (plan.reuseFrom ?? null) !== null || plan.rejectsOf !== undefined) {
    return;
  }
  const { rows, read } = await sampleRows(context, { plan, engine, decoder, ranges, count: firstRows });
  const before = paid.spending;
  await askSampleInBulk(paid, rows);
  const outputs = outputTensors(plan.contract);
  const asked = await Promise.allSettled(rows.map((inputs) => engine.run({ inputs, outputs })));
  await paid.keep(); // also where one of them ends the attempt: the others are paid for
  const answers = asked.map((one) => {
    if (one.status === "rejected") {
      throw one.reason;
    }
    return one.value;
  });
  const faults = answers.flatMap((answer) => (answer.kind === "done" ? [] : [answer.message]));
  requireValid(context, plan, { rows: rows.length, faults });
  requireAffordable(plan, paid, {
    before: before.own.answers,
    asked: rows.length - (paid.spending.reused - before.reused),
    share: rows.length / read,
  });
}

function requireValid(
  { spec }: Pick<JobContext, "spec">,
  plan: Plan,
  { rows, faults }: { readonly rows: number; readonly faults: readonly string[] },
): void {
  const mayReject = allowedRejects({ limit: spec.max_rejects, rows: plan.input.rows }) / plan.input.rows;
  const least = Math.min(leastValid, 1 - mayReject);
  const valid = rows - faults.length;
  if (valid >= least * rows) {
    return;
  }
  const times = new Map<string, number>();
  for (const fault of faults) {
    times.set(fault, (times.get(fault) ?? 0) + 1);
  }
  const [common = ["", 0]] = [...times].toSorted(([, one], [, other]) => other - one);
  throw new JobError(
    "FIRST_ROWS",
    `asking the first ${rows} rows, spread over the table: ${count(valid, "answer")} are valid, fewer than ${Math.round(least * 100)}%; ${common[1]} times: ${common[0]}`,
    {
      hint: "correct model.prompt or model.response and start over with --new-run; or allow more with max_rejects and run the same command: these answers are kept",
    },
  );
}

interface AskedRows {
  /** Answers of this attempt before these rows were asked. */
  readonly before: number;
  /** Rows whose answers were not there yet. */
  readonly asked: number;
  /** The part of the rows that input.where keeps. */
  readonly share: number;
}

/** @throws JobError BUDGET if all rows would probably cost more than the run may */
function requireAffordable(plan: Plan, { spending, limits }: PaidEngine, { before, asked, share }: AskedRows): void {
  const { own, run: all, price } = spending;
  if (all.answers === 0) {
    return;
  }
  const tries = asked === 0 ? 1 : Math.max(1, (own.answers - before) / asked);
  const perAnswer = (plan.input.rows * share * tries) / all.answers;
  const tokens = (all.prompt + all.completion) * perAnswer;
  const cost = price === undefined ? 0 : costOf(all, price) * perAnswer;
  const found =
    limits.cost !== undefined && cost > limits.cost
      ? `cost about ${cost.toFixed(2)}, and model.budget.max_cost is ${limits.cost}`
      : limits.tokens !== undefined && tokens > limits.tokens
        ? `take about ${showCount(Math.round(tokens))} tokens, and model.budget.max_tokens is ${showCount(limits.tokens)}`
        : undefined;
  if (found !== undefined) {
    throw new JobError("BUDGET", `asking the first rows, spread over the table: all rows would ${found}`, {
      hint: "raise the budget and run the same command: these answers are kept",
    });
  }
}
