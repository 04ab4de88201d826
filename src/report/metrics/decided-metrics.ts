import { type MetricsRunState, stateMetric } from "./check-metrics.js";
import { exitCodeMetric, lastSuccess, lastSuccessHelp, startedMetric } from "./metrics-text.js";

/** A decision of a person on a run. */
interface DecidedRun {
  readonly runId: string;
  readonly state: MetricsRunState;
  /** When it was made, in milliseconds since 1970. */
  readonly atMs: number;
}

/**
 * Updates the metrics of a worker after a person decided on the run: its state, and if it is published now, also the
 * exit code of an attempt that the checks held, and the time of the last success. Returns undefined for metrics of
 * another run.
 */
export function decidedMetrics(text: string, { runId, state, atMs }: DecidedRun): string | undefined {
  if (!text.includes(`run_id="${runId}"`)) {
    return undefined;
  }
  const isOfRun = new RegExp(`^${stateMetric}\\{`, "m").test(text); // else the last attempt failed, or is running
  const decided = text.replaceAll(
    new RegExp(`^(${stateMetric}\\{.*state="(\\w+)"\\}) [01]$`, "gm"),
    (_, sample: string, each: string) => `${sample} ${Number(each === state)}`,
  );
  return isOfRun && state === "published" ? succeeded(decided, atMs / 1000) : decided;
}

function succeeded(text: string, atSeconds: number): string {
  const isSuccess = new RegExp(`^(${exitCodeMetric}\\{.*\\}) 67$`, "m");
  const sample = new RegExp(`^(${lastSuccess}\\{.*\\}) (\\S+)$`, "m");
  const published = text.replace(isSuccess, "$1 0");
  if (sample.test(published)) {
    return published.replace(
      sample,
      (_, name: string, earlier: string) => `${name} ${Math.max(Number(earlier), atSeconds)}`,
    );
  }
  return published.replace(
    new RegExp(`^(?=# HELP ${startedMetric} [^]*?^${startedMetric}(\\{.*\\}) )`, "m"),
    (_, labels: string) =>
      `# HELP ${lastSuccess} ${lastSuccessHelp}\n# TYPE ${lastSuccess} gauge\n${lastSuccess}${labels} ${atSeconds}\n`,
  );
}
