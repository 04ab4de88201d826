import { table } from "./table.js";

/** The findings of `infer-batch doctor`. */
export interface Diagnosis {
  readonly program: string;
  readonly platform: string;
  /** Providers of the spec; without a spec, all that are checked. */
  readonly asked: readonly string[];
  readonly parts: readonly DiagnosisPart[];
  /** A trial batch on each provider. */
  readonly trials: readonly DiagnosisTrial[];
  readonly model: string;
  /** The provider on which a run would score, `auto` if it measures several, or the exit code with which it would end. */
  readonly outcome: string | number;
}

/** A library, driver or device that a provider needs. */
export interface DiagnosisPart {
  readonly name: string;
  readonly state: string;
  readonly found: string;
  readonly remedy?: string | undefined;
}

/** A batch on one provider. */
export interface DiagnosisTrial {
  readonly provider: string;
  readonly state: string;
  /** The processor or GPU, as its driver names it; undefined: the driver does not say. */
  readonly device?: string | undefined;
  readonly operators: Readonly<Record<string, number>>;
  readonly ms: number | undefined;
  readonly fault: string | undefined;
  /** What computes the model's trees in long runs. */
  readonly trees?: string | null | undefined;
}

/** The findings as one line of JSON. */
export function doctorJson({ program, outcome, ...found }: Diagnosis): string {
  const trials = found.trials.map((trial) => ({
    ...trial,
    device: trial.device ?? null,
    ms: trial.ms ?? null,
    fault: trial.fault ?? null,
    trees: trial.trees ?? null,
  }));
  const parts = found.parts.map(({ name, state, found: finding, remedy }) => {
    return { name, state, found: finding, remedy: remedy ?? null };
  });
  return JSON.stringify({
    version: program,
    ...found,
    parts,
    trials,
    runs_on: typeof outcome === "string" ? outcome : null,
  });
}

/** The findings as text. */
export function doctorText({ program, platform, asked, parts, trials, model, outcome }: Diagnosis): string {
  const remedies = parts.flatMap(({ name, state, remedy }) =>
    remedy === undefined || state === "ok" ? [] : [`  ${name}: ${remedy}`],
  );
  const forWhat = asked.some((provider) => provider !== "cpu") ? "To do:" : "To do for scoring on a GPU:";
  return [
    `infer-batch ${program}, ${platform}`,
    ...table(parts.map(({ name, state, found }) => [name, state, found])),
    "",
    `Two batches of one row through ${model}, on each provider alone:`,
    ...table(trials.map((trial) => [trial.provider, trial.state, trialText(trial)])),
    "",
    ...(remedies.length === 0 ? [] : [forWhat, ...remedies, ""]),
    verdict(asked, outcome, trials),
    "",
  ].join("\n");
}

function verdict(asked: Diagnosis["asked"], outcome: Diagnosis["outcome"], trials: readonly DiagnosisTrial[]): string {
  if (typeof outcome === "number") {
    return `A run with providers [${asked.join(", ")}] would end with ${outcome}.`;
  }
  const state = trials.find(({ provider }) => provider === outcome)?.state;
  const but = state === "idle" ? ", which leaves all of this model to the CPU" : ", where the trial failed";
  return `A run scores on ${outcome}${state === "ok" ? "" : but}.`;
}

function trialText({ device, operators, ms, fault, trees }: DiagnosisTrial): string {
  const counts = Object.entries(operators).map(([provider, count]) => `${count} on ${provider}`);
  const ran = counts.length === 0 ? [] : [`operators: ${counts.join(", ")}`];
  const took = ms === undefined ? [] : [`${ms.toFixed(1)} ms`];
  const compiled = typeof trees === "string" ? [`trees: ${trees}`] : [];
  return [
    ...(device === undefined ? [] : [device]),
    ...ran,
    ...took,
    ...compiled,
    ...(fault === undefined ? [] : [fault]),
  ].join("; ");
}
