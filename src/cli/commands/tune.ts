import { table } from "../../report/table.js";
import { type Tuning, tune } from "../../run/tune.js";
import { usableCores } from "../cores.js";
import type { Io } from "../io.js";
import { type JobOptions, openJob } from "../job-context.js";

/** Long enough for a dozen batches of most models, short enough to wait for all combinations. */
const msEach = 300;

export async function tuneCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: Io,
): Promise<void> {
  await using job = await openJob(spec, options);
  const cores = usableCores();
  const onGpu = job.spec.engine.providers[0] !== "cpu";
  const several = onGpu ? { sessions: 2, threads: cores } : { sessions: cores, threads: 1 };
  const layouts = [several, ...(cores > 1 || onGpu ? [{ sessions: 1, threads: cores }] : [])];
  const found: Tuning[] = [];
  for await (const one of tune(job, { layouts, ms: msEach })) {
    found.push(one);
  }
  io.stdout.write(options.json === true ? jsonText(found) : tuningText(found));
}

function fastestOf(found: readonly Tuning[]): Tuning | undefined {
  return found.reduce<Tuning | undefined>(
    (best, one) => (best === undefined || one.rowsPerSecond > best.rowsPerSecond ? one : best),
    undefined,
  );
}

function jsonText(found: readonly Tuning[]): string {
  const lines = found.map(({ sessions, threads, batchRows, rowsPerSecond }) => ({
    sessions,
    threads,
    batch_size: batchRows,
    rows_per_second: rowsPerSecond,
  }));
  return `${JSON.stringify({ tuning: lines })}\n`;
}

function tuningText(found: readonly Tuning[]): string {
  const best = fastestOf(found);
  const rows = found.map((one) => [
    String(one.sessions),
    String(one.threads),
    one.batchRows.toLocaleString("en-US"),
    one.rowsPerSecond.toLocaleString("en-US"),
    one === best ? "<- fastest" : "",
  ]);
  return [
    "The model alone, on the job's first rows; nothing is read or written meanwhile:",
    ...table([["sessions", "threads each", "batch_size", "rows/s", ""], ...rows], { right: [0, 1, 2, 3] }),
    "batch_size: auto looks for the fastest on a run's own first batches.",
    "",
  ].join("\n");
}
