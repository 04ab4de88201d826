import { dirname } from "node:path";
import { openLoaded, recordOf } from "#src/job/open.js";
import { readSpec } from "#src/job/reading.js";
import { reporting } from "#src/job/reporting.js";
import { JobError } from "#src/base/errors.js";
import type { AttemptRecord } from "#src/report/attempt-record.js";
import type { RunReport } from "#src/report/report.js";
import type { Stage } from "#src/report/stage-times.js";
import { runJob } from "#src/run/run.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "./job.js";
import { fixtureNamed } from "./world.js";

export const wine = fixtureNamed("wine-forest");

export interface Told {
  readonly report: RunReport | undefined;
  readonly error: unknown;
  /** Log lines. */
  readonly said: string;
  readonly record: AttemptRecord;
  readonly pieces: readonly Piece[];
}

/** Of a stage. */
interface Piece {
  readonly stage: Stage;
  readonly startedMs: number;
  readonly endedMs: number;
}

export interface Attempt {
  /** In the place of the run; it may ask what was logged. */
  readonly work?: (said: () => string) => Promise<RunReport>;
  readonly worker?: { readonly index: number; readonly count: number };
}

/** Carries out a job in this process and tells of it. */
export async function tell(spec: string, { work, ...attempt }: Attempt = {}, metricsPort?: number): Promise<Told> {
  let said = "";
  const say = (message: string): void => {
    said += `${message}\n`;
  };
  const log = { info: say, warn: say, debug() {} };
  const alone = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
  const pieces: Piece[] = [];
  const onStage = (stage: Stage, startedMs: number, endedMs: number): void => {
    pieces.push({ stage, startedMs, endedMs });
  };
  const loaded = await readSpec(spec, { param: [] });
  const record = recordOf(loaded.spec, { worker: attempt.worker ?? alone.worker, onStage });
  const { signal } = new AbortController();
  const about = { loaded, folder: dirname(spec), record, log, signal, dateMs: Date.now, metricsPort };
  try {
    const report = await reporting(about, async () => {
      if (work !== undefined) {
        return await work(() => said);
      }
      await using job = await openLoaded(loaded, spec, { log, attempt: { ...alone, ...attempt }, record });
      return await runJob(job);
    });
    return { report, error: undefined, said, record, pieces };
  } catch (error) {
    return { report: undefined, error, said, record, pieces };
  }
}

export const away = new JobError("DATABASE", "connecting to db:5432: no answer", { hint: "try again" });
export const fails = { work: () => Promise.reject(away) };

export async function inScratch(
  overrides: SpecOverrides,
  use: (spec: string, folder: string) => Promise<void>,
): Promise<void> {
  await using folder = await scratchFolder();
  await use(await writeSpec(folder.path, wine, { commit_rows: 50, ...overrides }), folder.path);
}
