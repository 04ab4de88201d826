import type { Engine } from "../../engine/port.js";
import type { Plan } from "../../plan/plan.js";
import type { ProviderChoice } from "../../report/provider-choice.js";
import { count, showDuration } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type {
  LeftOutProvider,
  ProviderMeasurements,
  ProviderSpeed,
  ProviderTrials,
} from "../../scoring/provider-trials.js";
import { timeRow } from "../../scoring/warm-up.js";
import type { Provider } from "../../spec/engine-spec.js";

/** Another provider must need less than this share of the CPU's time. Less is noise, and the CPU is always there. */
const gainedShare = 0.9;
/** A trial begins with as many rows as the model should take this long for. */
const firstTrialSeconds = 0.5;
const [fewestRows, mostRows] = [16, 32_768];

type ChoiceContext = Pick<JobContext, "log" | "dateMs" | "signal">;

export interface ChoiceOptions {
  readonly trials: ProviderTrials;
  readonly plan: Pick<Plan, "contract" | "model">;
  /** The model on the CPU. */
  readonly engine: Engine;
  /** The number of rows that are left to score. */
  readonly rows: number;
  /** Closes the engine before the first trial, so that the model is in memory once. */
  readonly release: () => Promise<void>;
}

/**
 * Chooses the provider on which the rows that are left are scored first, start included. Measures what no earlier run has
 * measured: the CPU first, then the others if the CPU needs long.
 */
export async function chooseProvider(context: ChoiceContext, options: ChoiceOptions): Promise<ProviderChoice> {
  const { trials, plan, rows } = options;
  const { limits } = trials;
  if (rows === 0) {
    return unmeasured("no row is left to score");
  }
  const contenders = await trials.contenders();
  if (contenders.length === 0) {
    return unmeasured("this machine has the parts of no other provider");
  }
  const known = (await trials.find(plan.model.sha256)) ?? { measuredAt: "", speeds: [], leftOut: [] };
  let firstRows = mostRows;
  if (speedOf(known, "cpu") === undefined) {
    const model = await timeModel(options);
    if (model.isKnown && model.seconds <= limits.modelSeconds) {
      return unmeasured(`the model takes ${showSeconds(model.seconds)} of the CPU for ${count(rows, "row")}`);
    }
    ({ firstRows } = model);
  }
  const measuring = openMeasuring(context, options, known);
  await measuring.measure("cpu", firstRows);
  const cpu = speedOf(measuring.found, "cpu");
  if (cpu === undefined) {
    const { leftOut, ...found } = choiceOf("cpu", measuring.found);
    const reason = leftOut.find(({ provider }) => provider === "cpu")?.reason ?? "";
    return { ...found, leftOut: [], why: `the CPU could not be measured: ${reason}` };
  }
  const cpuSeconds = rows / cpu.rowsPerSecond;
  const isLong = cpuSeconds > limits.cpuSeconds;
  for (const provider of isLong ? contenders : []) {
    await measuring.measure(provider, Math.max(firstRows, Math.ceil(cpu.rowsPerSecond * firstTrialSeconds)));
  }
  await measuring.keep();
  return isLong
    ? fastest(measuring.found, { rows, cpu, contenders })
    : { ...choiceOf("cpu", measuring.found), why: `${count(rows, "row")} take the CPU ${showSeconds(cpuSeconds)}` };
}

interface Measuring {
  /** What is known by now. */
  readonly found: ProviderMeasurements;
  /** Measures a provider unless it was measured. */
  measure(provider: Provider, firstRows: number): Promise<void>;
  /** Keeps what is new and lasts. */
  keep(): Promise<void>;
}

function openMeasuring(
  { log, dateMs, signal }: ChoiceContext,
  { trials, plan, release }: ChoiceOptions,
  known: ProviderMeasurements,
): Measuring {
  let found = known;
  let released: Promise<void> | undefined;
  return {
    get found() {
      return found;
    },
    async measure(provider, firstRows) {
      if (speedOf(found, provider) !== undefined || found.leftOut.some((one) => one.provider === provider)) {
        return;
      }
      released ??= release();
      await released;
      log.info(`measuring the job's first rows on ${provider}, because engine.providers is auto`);
      const trial = await trials.measure(provider, firstRows);
      signal.throwIfAborted();
      const measuredAt = new Date(dateMs()).toISOString();
      found =
        trial.kind === "measured"
          ? { ...found, measuredAt, speeds: [...found.speeds, trial.speed] }
          : { ...found, measuredAt, leftOut: [...found.leftOut, leftOutOf(trial)] };
    },
    async keep() {
      if (released !== undefined) {
        const lasting = found.leftOut.filter(({ isLasting }) => isLasting);
        await trials.keep(plan.model.sha256, { ...found, leftOut: lasting });
      }
    },
  };
}

function leftOutOf({ provider, reason, isLasting }: LeftOutProvider): LeftOutProvider {
  return { provider, reason, isLasting };
}

function unmeasured(why: string): ProviderChoice {
  return { provider: "cpu", why, speeds: [], leftOut: [], measuredAt: null };
}

function choiceOf(provider: Provider, found: ProviderMeasurements): Omit<ProviderChoice, "why"> {
  const leftOut = found.leftOut.map(({ provider: other, reason }) => ({ provider: other, reason }));
  return { provider, speeds: found.speeds, leftOut, measuredAt: found.measuredAt };
}

function speedOf({ speeds }: ProviderMeasurements, provider: Provider): ProviderSpeed | undefined {
  return speeds.find((speed) => speed.provider === provider);
}

interface ModelTime {
  /** Whether the model took blank rows, so that its time is known. */
  readonly isKnown: boolean;
  /** The seconds that all sessions together take for the rows that are left. */
  readonly seconds: number;
  readonly firstRows: number;
}

/** Times the model on small batches of blank rows, which take longer for each row than large ones. */
async function timeModel({ engine, plan, rows }: ChoiceOptions): Promise<ModelTime> {
  const rowMs = (await timeRow(engine, plan.contract)) / (engine.local?.sessions ?? 1);
  const wanted = rowMs === 0 ? fewestRows : Math.ceil((firstTrialSeconds * 1000) / rowMs);
  return {
    isKnown: rowMs > 0,
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
  const compared = [cpu, ...others].map((speed) => `${showSeconds(secondsOn(speed))} on ${speed.provider}`).join(", ");
  return { ...choiceOf(winner.provider, known), why: `${count(rows, "row")} take ${compared}` };
}

function showSeconds(seconds: number): string {
  return seconds < 1 ? "less than 1 s" : `about ${showDuration(seconds)}`;
}
