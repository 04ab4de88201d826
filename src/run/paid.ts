import { outputTensors } from "../models/binding/contract.js";
import {
  type Engine,
  type EngineResponse,
  type LookAtPaid,
  type PaidEngine,
  type Price,
  type Spending,
  type Spent,
  costOf,
} from "../models/engine.js";
import type { Decoder } from "../formats/format.js";
import { type SpanRange, spansOf } from "./plan/spans.js";
import type { Plan } from "./plan/plan.js";
import type { PaidReport, SpendingReport } from "../report/report.js";
import { count, digitsApart, rounded, showCount, shown } from "../base/shown-numbers.js";
import type { OpenedJob, Attempt, Log } from "../flow/opened-job.js";
import { pendingRanges } from "../flow/read.js";
import { allowedRejects } from "../flow/rejects.js";
import type { RunSink, Sink } from "../targets/target.js";
import { bestEffort, createEvent } from "../base/promises.js";
import { JobError } from "../base/errors.js";
import { sampleRows, scoreWithoutPublishing } from "./score-without-publishing.js";
import { type Tensor, blankRows } from "../columns/tensor.js";
import { countSpans } from "./lifecycle/span-record.js";
import { recordSpending, readSpending } from "./attempt.js";
import type { RecordedSpending } from "./lifecycle/recorded-run.js";

const firstRows = 200;
/** The share of the first rows whose answers must be valid. */
const leastValid = 0.95;

interface OwnRows {
  readonly run: Pick<RunSink, "plan" | "spans">;
  readonly engine: Engine;
  readonly decoder: Decoder;
  readonly share: SpanRange;
}

/**
 * Checks the rows of this worker, and asks the model for the first ones, where answers cost money. Does nothing where
 * rows take predictions of an earlier run.
 * @throws JobError BAD_ROW, TOO_MANY_REJECTS; FIRST_ROWS if too few answers are valid, BUDGET if all rows would exceed it
 */
export async function askAhead(opened: OpenedJob, own: OwnRows): Promise<void> {
  const { run, engine } = own;
  if (engine.paid !== undefined && (run.plan.reuseFrom ?? null) === null) {
    await checkRows(opened, own, engine.paid);
    await askFirstRows(opened, own, engine.paid);
  }
}

/**
 * Asks a few rows, spread over those of this worker, before all others: a wrong prompt, or a table that is too dear,
 * shows for little money. Their answers are kept, and count.
 */
async function askFirstRows(
  opened: OpenedJob,
  { run, engine, decoder, share }: OwnRows,
  paid: PaidEngine,
): Promise<void> {
  const { job } = opened;
  const { plan } = run;
  const ranges = pendingRanges(spansOf(plan), run.spans, share);
  const pending = ranges.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
  if (pending <= firstRows) {
    return;
  }
  const sample = await sampleRows(opened, { plan, engine, decoder, ranges, count: firstRows });
  const before = paid.spending;
  const mayReject = allowedRejects({ limit: job.spec.max_rejects, rows: plan.input.rows }) / plan.input.rows;
  const least = Math.min(leastValid, 1 - mayReject) * sample.rows.length;
  const outputs = outputTensors(plan.contract);
  const distinct = new Set(sample.rows.map((inputs) => JSON.stringify(paid.promptTexts(inputs)))).size;
  const asking = sample.rows.map((inputs) => engine.run({ inputs, outputs }));
  try {
    const seen = await enoughAnswers(asking, least);
    requireValid(seen, least);
    const { own, reused } = paid.spending;
    const asked = seen.settled - (reused - before.reused);
    requireAffordable(plan, paid, {
      answers: own.answers - before.own.answers,
      asked,
      share: distinct / sample.read,
    });
    paid.asksAgain(sample.rows.length);
  } catch (error) {
    await Promise.allSettled(asking); // what is on its way is paid for, and kept
    await paid.keep();
    throw error;
  }
}

interface SeenAnswers {
  readonly rows: number;
  readonly settled: number;
  readonly valid: number;
  readonly faults: readonly string[];
}

/**
 * Waits until so many answers are valid that the others cannot change the verdict, or until all are there: a few slow
 * answers must not hold up the whole table. The rows of the others find their requests under way.
 */
async function enoughAnswers(asking: readonly Promise<EngineResponse>[], least: number): Promise<SeenAnswers> {
  const faults: string[] = [];
  let [valid, settled] = [0, 0];
  const enough = createEvent();
  const all = Promise.allSettled(
    asking.map(async (one) => {
      const answer = await one;
      settled += 1;
      if (answer.kind === "done") {
        valid += 1;
      } else {
        faults.push(answer.message);
      }
      if (valid >= least) {
        enough.set();
      }
    }),
  );
  await Promise.race([all, enough.happened]);
  if (valid < least) {
    for (const one of await all) {
      if (one.status === "rejected") {
        throw one.reason;
      }
    }
  }
  return { rows: asking.length, settled, valid, faults };
}

function requireValid({ rows, valid, faults }: SeenAnswers, least: number): void {
  if (valid >= least) {
    return;
  }
  const times = new Map<string, number>();
  for (const fault of faults) {
    times.set(fault, (times.get(fault) ?? 0) + 1);
  }
  const [common = ["", 0]] = [...times].toSorted(([, one], [, other]) => other - one);
  throw new JobError(
    "FIRST_ROWS",
    `asking the first ${rows} rows, spread over the table: ${count(valid, "answer")} are valid, fewer than ${Math.round((least / rows) * 100)}%; ${common[1]} times: ${common[0]}`,
    {
      hint: "correct model.prompt, model.sampling or model.response and start over with --new-run; or allow more with max_rejects and run the same command: these answers are kept",
    },
  );
}

interface AskedRows {
  readonly answers: number;
  /** Rows that they are of: those whose answers were not there yet. */
  readonly asked: number;
  /** The part of the rows that input.where keeps, and whose prompt is not that of another row. */
  readonly share: number;
}

function requireAffordable(plan: Plan, { spending, limits }: PaidEngine, { answers, asked, share }: AskedRows): void {
  const { run: all, price } = spending;
  if (all.answers === 0) {
    return;
  }
  const tries = asked <= 0 ? 1 : Math.max(1, answers / asked);
  const perAnswer = (plan.input.rows * share * tries) / all.answers;
  const tokens = (all.prompt + all.completion) * perAnswer;
  const cost = price === undefined ? 0 : costOf(all, price) * perAnswer;
  const found =
    limits.cost !== undefined && cost > limits.cost
      ? `cost about ${shown(cost, digitsApart(cost, limits.cost))}, and model.budget.max_cost is ${limits.cost}`
      : limits.tokens !== undefined && tokens > limits.tokens
        ? `take about ${showCount(Math.round(tokens))} tokens, and model.budget.max_tokens is ${showCount(limits.tokens)}`
        : undefined;
  if (found !== undefined) {
    throw new JobError("BUDGET", `asking the first rows, spread over the table: all rows would ${found}`, {
      hint: "raise the budget and run the same command: these answers are kept",
    });
  }
}

/**
 * Reads the pending rows of a share before the first one is asked. Rows that cannot be asked (a column of the prompt is
 * NULL, an expression fails, the prompt is too long) end the run before anything is paid for, if the spec says so.
 */
async function checkRows(opened: OpenedJob, { run, engine, decoder, share }: OwnRows, paid: PaidEngine): Promise<void> {
  const { plan } = run;
  const checking: Engine = {
    ...engine,
    paid: undefined, // no row of a batch is spared
    ...(paid.unaskable === undefined ? { mostRows: undefined } : {}), // rows need not be checked one by one
    run({ inputs, outputs }) {
      const fault = paid.unaskable?.(inputs);
      const rows = inputs[0]?.dims[0] ?? 1;
      return Promise.resolve(
        fault === undefined
          ? { kind: "done", outputs: blankOutputs(engine, outputs, rows), ms: 0, inputs }
          : { kind: "failed", ...fault, inputs },
      );
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const ranges = pendingRanges(spansOf(plan), run.spans, share);
  const rows = { ranges, rejectedRows: countSpans(run.spans).rejected };
  await scoreWithoutPublishing(opened, { plan, engine: checking, decoder, ...rows }, () => undefined);
}

function blankOutputs({ signature }: Engine, names: readonly string[], rows: number): readonly Tensor[] {
  const blank = blankRows(signature.outputs, rows) ?? [];
  return names.flatMap((name) => blank.find((output) => output.name === name) ?? []);
}

/** An attempt whose answers are kept. Disposing keeps what is left, and records at the target what the run has paid for. */
interface PayingAttempt extends AsyncDisposable {
  /**
   * Counts what all workers have paid for, and records it at the target: when this worker's share is committed, before
   * the run is finished or held.
   */
  settle(): Promise<void>;
}

/**
 * Takes over the answers that attempts of a run have kept, and keeps those of this attempt at the target. undefined:
 * predictions are free.
 * @throws JobError MODEL_CHANGED, DISK, OBJECT_STORE, DATABASE
 */
export async function beginPaying(
  sink: Sink,
  { worker }: Attempt,
  log: Log,
  { engine: { paid }, run }: { readonly engine: Engine; readonly run: RunSink },
): Promise<PayingAttempt | undefined> {
  const { runId } = run.plan;
  if (paid === undefined) {
    return undefined;
  }
  const journal = run.answers();
  await journal.keep([]);
  const begun = await paid.begin(journal, worker);
  const { answers } = paid.spending.earlier;
  if (answers > 0) {
    log.info(`${count(answers, "answer")} of earlier attempts are kept, and not asked for again`);
  }
  let recorded = 0; // a run that paid for nothing has nothing to record
  const record = async (): Promise<void> => {
    const { spending } = paid;
    const known = spending.run.answers;
    if (known > recorded) {
      recorded = known;
      await recordSpending(sink, runId, spentReport(spending.run, spending.price));
    }
  };
  const recount = (): Promise<void> =>
    paid.recount(async () => {
      const told = await readSpending(sink, runId);
      return (
        told && {
          answers: told.answers,
          prompt: told.prompt_tokens,
          cached: told.cached_tokens,
          completion: told.completion_tokens,
        }
      );
    });
  return {
    async settle() {
      await (worker.count === 1 ? undefined : recount());
      await record();
    },
    async [Symbol.asyncDispose]() {
      await begun[Symbol.asyncDispose]();
      if (recorded === 0 && worker.count > 1) {
        await bestEffort(recount); // an attempt that ends with an error counts what the others have paid, too
      }
      await record();
    },
  };
}

/** What an engine spent, as reports have it. */
export function spendingReport({ own, run, lost, reused, price }: Spending): SpendingReport {
  return {
    attempt: spentReport(own, price),
    run: spentReport(run, price),
    rowsReused: reused,
    requestsLost: lost,
  };
}

/** What an unfinished run has paid for. Answers that cannot be read hide nothing else of the run. */
export async function paidReport(lookAtPaid: LookAtPaid, answers: Parameters<LookAtPaid>[0]): Promise<PaidReport> {
  try {
    const { kept, price } = await lookAtPaid(answers);
    return spentReport(kept, price);
  } catch (error) {
    if (error instanceof JobError) {
      return error.message;
    }
    throw error;
  }
}

function spentReport(spent: Spent, price: Price | undefined): RecordedSpending {
  const { answers, prompt, cached, completion } = spent;
  const cost = price === undefined ? null : costOf(spent, price);
  return {
    answers,
    prompt_tokens: prompt,
    cached_tokens: cached,
    completion_tokens: completion,
    cost: rounded(cost, 6), // sums of floating-point numbers have more digits than prices
  };
}
