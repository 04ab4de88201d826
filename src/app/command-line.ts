import type { JobContext } from "../scoring/context.js";
import { type LimitedRun, limitParam } from "../spec/limited-spec.js";
import { shellWord } from "../util/shell-word.js";

/** Returns the command line that carries out the run of these params, decides on it, or shows it. */
export function commandFor(
  specPath: string,
  params: Readonly<Record<string, string>>,
  {
    other,
    limited,
  }: { readonly other?: Parameters<JobContext["command"]>[1]; readonly limited?: LimitedRun | undefined },
): string {
  const options = Object.entries(params).map(([name, value]) =>
    name === limitParam
      ? `--limit ${value} --output ${shellWord(limited?.folder ?? "")}`
      : `--param ${shellWord(`${name}=${value}`)}`,
  );
  const run = other === undefined || !("runId" in other) ? [] : [`--run ${other.runId}`];
  return [`infer-batch ${other?.verb ?? "run"}`, shellWord(specPath), ...options, ...run].join(" ");
}
