import { table } from "./table.js";

/** What `infer-batch doctor` found. */
export interface Diagnosis {
  readonly program: string;
  readonly platform: string;
  /** As the spec has them; without a spec, those that are looked at. */
  readonly asked: readonly string[];
  readonly parts: readonly DiagnosisPart[];
  /** One batch on each provider. */
  readonly trials: readonly DiagnosisTrial[];
  readonly model: string;
  /** Where a run would score: the first of the asked ones that can; a number: the exit code that it would end with. */
  readonly outcome: string | number;
}

export interface DiagnosisPart {
  readonly name: string;
  readonly state: string;
  readonly found: string;
  readonly remedy?: string | undefined;
}

export interface DiagnosisTrial {
  readonly provider: string;
  readonly state: string;
  readonly operators: Readonly<Record<string, number>>;
  readonly ms: number | undefined;
  readonly fault: string | undefined;
}

export function doctorJson({ program, outcome, ...found }: Diagnosis): string {
  const trials = found.trials.map((trial) => ({ ...trial, ms: trial.ms ?? null, fault: trial.fault ?? null }));
  const parts = found.parts.map(({ name, state, found: what, remedy }) => {
    return { name, state, found: what, remedy: remedy ?? null };
  });
  return JSON.stringify({
    version: program,
    ...found,
    parts,
    trials,
    runs_on: typeof outcome === "string" ? outcome : null,
  });
}

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

function trialText({ operators, ms, fault }: DiagnosisTrial): string {
  const counts = Object.entries(operators).map(([provider, count]) => `${count} on ${provider}`);
  const ran = counts.length === 0 ? [] : [`operators: ${counts.join(", ")}`];
  const took = ms === undefined ? [] : [`${ms.toFixed(1)} ms`];
  return [...ran, ...took, ...(fault === undefined ? [] : [fault])].join("; ");
}
