import type { Engine } from "../../engine/port.js";
import type { Plan } from "../../plan/plan.js";
import type { ProviderChoice } from "../../report/provider-choice.js";
import { count, showDuration } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { ProviderMeasurements, ProviderSpeed, ProviderTrials } from "../../scoring/provider-trials.js";
import { timeRow } from "../../scoring/warm-up.js";
import type { Provider } from "../../spec/engine-spec.js";

/** The limits from which measuring pays. Tests lower them. */
export interface ChoiceLimits {
  /** The CPU scores a run that takes no longer than this. */
  readonly cpuSeconds: number;
  /** No other provider can save more than the model takes: below this, nothing is measured. */
  readonly modelSeconds: number;
}

const usualLimits: ChoiceLimits = { cpuSeconds: 30, modelSeconds: 3 };
/** Another provider must need less than this share of the CPU's time. Less is noise, and the CPU is always there. */
const gainedShare = 0.9;
/** A trial begins with as many rows as the model should take this long for. */
const firstTrialSeconds = 0.5;
const [fewestRows, mostRows] = [16, 32_768];

export interface ChoiceOptions {
  readonly trials: ProviderTrials;
  readonly plan: Pick<Plan, "contract" | "model">;
  /** The model on the CPU. */
  readonly engine: Engine;
  /** The number of rows that are left to score. */
  readonly rows: number;
  /** Closes the engine before the first trial, so that the model is in memory once. */
  readonly release: () => Promise<void>;
  readonly limits?: ChoiceLimits;
}

/**
 * Chooses the provider on which the rows that are left are scored first, start included. Measures what no earlier run has
 * measured: the CPU first, then the others if the CPU needs long.
 */
export async function chooseProvider(
  { log, dateMs, signal }: Pick<JobContext, "log" | "dateMs" | "signal">,
  options: ChoiceOptions,
): Promise<ProviderChoice> {
  const { trials, plan, rows, limits = usualLimits, release } = options;
  const { sha256 } = plan.model;
  const contenders = rows === 0 ? [] : await trials.contenders();
  if (contenders.length === 0) {
    const why = rows === 0 ? "no row is left to score" : "this machine has the parts of no other provider";
    return unmeasured(why);
  }
  let known = (await trials.find(sha256)) ?? { measuredAt: "", speeds: [], leftOut: [] };
  const estimated = speedOf(known, "cpu") === undefined ? await timeModel(options) : undefined;
  if (estimated !== undefined && estimated.known && estimated.seconds <= limits.modelSeconds) {
    return unmeasured(`the model takes the CPU about ${estimated.seconds.toFixed(1)} s for ${count(rows, "row")}`);
  }
  let firstRows = estimated?.firstRows ?? mostRows;
  let released: Promise<void> | undefined;
  const measure = async (provider: Provider): Promise<void> => {
    released ??= release();
    await released;
    log.info(`measuring the job's first rows on ${provider}, as engine.providers is auto`);
    const trial = await trials.measure(provider, firstRows);
    signal.throwIfAborted();
    const measuredAt = new Date(dateMs()).toISOString();
    known =
      trial.kind === "measured"
        ? { ...known, measuredAt, speeds: [...known.speeds, trial.speed] }
        : { ...known, measuredAt, leftOut: [...known.leftOut, trial] };
  };
  if (speedOf(known, "cpu") === undefined) {
    await measure("cpu");
  }
  const cpu = speedOf(known, "cpu");
  if (cpu === undefined) {
    return { ...chosen("cpu", known), why: "the CPU could not be measured" };
  }
  const cpuSeconds = rows / cpu.rowsPerSecond;
  if (cpuSeconds > limits.cpuSeconds) {
    firstRows = Math.max(firstRows, Math.ceil(cpu.rowsPerSecond * firstTrialSeconds));
    for (const provider of contenders) {
      if (!isTried(known, provider)) {
        await measure(provider);
      }
    }
  }
  if (released !== undefined) {
    await trials.keep(sha256, { ...known, leftOut: known.leftOut.filter(({ isLasting }) => isLasting) });
  }
  return cpuSeconds <= limits.cpuSeconds
    ? { ...chosen("cpu", known), why: `the CPU needs about ${showDuration(cpuSeconds)} for ${count(rows, "row")}` }
    : fastest(known, { rows, cpu, contenders });
}

function unmeasured(why: string): ProviderChoice {
  return { provider: "cpu", why, speeds: [], leftOut: [], measuredAt: null };
}

function chosen(provider: Provider, { measuredAt, speeds, leftOut }: ProviderMeasurements): Omit<ProviderChoice, "why"> {
  return { provider, speeds, leftOut: leftOut.map(({ provider: name, reason }) => ({ provider: name, reason })), measuredAt };
}

function speedOf({ speeds }: ProviderMeasurements, provider: Provider): ProviderSpeed | undefined {
  return speeds.find((speed) => speed.provider === provider);
}

function isTried(known: ProviderMeasurements, provider: Provider): boolean {
  return speedOf(known, provider) !== undefined || known.leftOut.some((one) => one.provider === provider);
}

interface ModelTime {
  /** Whether the model took blank rows, so that its time is known. */
  readonly known: boolean;
  /** The seconds that all sessions together take for the rows that are left. */
  readonly seconds: number;
  readonly firstRows: number;
}

/** Times the model on small batches of blank rows, which take longer for each row than large ones. */
async function timeModel({ engine, plan, rows }: ChoiceOptions): Promise<ModelTime> {
  const rowMs = (await timeRow(engine, plan.contract)) / (engine.local?.sessions ?? 1);
  const wanted = rowMs === 0 ? fewestRows : Math.ceil((firstTrialSeconds * 1000) / rowMs);
  return {
    known: rowMs > 0,
    seconds: (rows * rowMs) / 1000,
    firstRows: Math.min(mostRows, Math.max(fewestRows, wanted)),
  };
}

interface Candidates {
  readonly rows: number;
  readonly cpu: ProviderSpeed;
  readonly contenders: readonly Provider[];
}

/** Compares the seconds until the last row. The CPU's start counts too: its engine was closed for the trials. */
function fastest(known: ProviderMeasurements, { rows, cpu, contenders }: Candidates): ProviderChoice {
  const secondsOn = ({ rowsPerSecond, startSeconds }: ProviderSpeed): number => startSeconds + rows / rowsPerSecond;
  const others = known.speeds.filter(({ provider }) => contenders.includes(provider));
  const [best] = others.toSorted((one, other) => secondsOn(one) - secondsOn(other));
  const winner = best !== undefined && secondsOn(best) < secondsOn(cpu) * gainedShare ? best : cpu;
  const compared = [cpu, ...others].map((speed) => `${showDuration(secondsOn(speed))} on ${speed.provider}`).join(", ");
  const why = `${count(rows, "row")} take about ${compared}`;
  return { ...chosen(winner.provider, known), why };
}
