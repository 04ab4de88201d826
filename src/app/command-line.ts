import type { JobContext } from "../scoring/context.js";
import { type LimitedRun, limitParam } from "../spec/limited-spec.js";

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

/** Quotes a text so that a POSIX shell takes it as one word. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
