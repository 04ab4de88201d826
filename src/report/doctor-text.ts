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
  /** The speed of the spec's model on blank rows, by batch size and layout; empty: it was not measured. */
  readonly speeds: readonly DiagnosisSpeed[];
  /** The provider on which a run would score, or the exit code with which it would end. */
  readonly outcome: string | number;
}

/** A library, driver or device that a provider needs. */
interface DiagnosisPart {
  readonly name: string;
  readonly state: string;
  readonly found: string;
  readonly remedy?: string | undefined;
}

/** A batch on one provider. */
interface DiagnosisTrial {
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

/** Rows per second with sessions of so many threads each. */
interface DiagnosisSpeed {
  readonly sessions: number;
  readonly threads: number;
  readonly batchRows: number;
  readonly rowsPerSecond: number;
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
    speeds: found.speeds.map(({ sessions, threads, batchRows, rowsPerSecond }) => {
      return { sessions, threads, batch_size: batchRows, rows_per_second: rowsPerSecond };
    }),
    runs_on: typeof outcome === "string" ? outcome : null,
  });
}

/** The findings as text. */
export function doctorText({ program, platform, asked, parts, trials, model, speeds, outcome }: Diagnosis): string {
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
    ...speedLines(speeds),
    ...(remedies.length === 0 ? [] : [forWhat, ...remedies, ""]),
    verdict(asked, outcome, trials),
    "",
  ].join("\n");
}

/** A table with a line for each batch size and a column for each layout. */
function speedLines(speeds: readonly DiagnosisSpeed[]): string[] {
  const layoutOf = ({ sessions, threads }: DiagnosisSpeed): string => `${sessions} x ${threads}`;
  const layouts = [...new Set(speeds.map(layoutOf))];
  const rateOf = (batchRows: number, layout: string): string =>
    speeds
      .find((speed) => speed.batchRows === batchRows && layoutOf(speed) === layout)
      ?.rowsPerSecond.toLocaleString("en-US") ?? "";
  const sizes = [...new Set(speeds.map(({ batchRows }) => batchRows))];
  const rows = sizes.map((size) =>
    [size.toLocaleString("en-US")].concat(layouts.map((layout) => rateOf(size, layout))),
  );
  return rows.length === 0
    ? []
    : [
        "Rows/s of the model alone, blank rows, by batch size and sessions x threads of each:",
        ...table([["batch_size", ...layouts], ...rows], {
          right: Array.from({ length: 1 + layouts.length }, (_, index) => index),
        }),
        "batch_size: auto looks for the fastest on a run's own first batches; threads: auto takes a session for each core.",
        "",
      ];
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
