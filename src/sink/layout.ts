import { join } from "node:path";
import { numberedRunId, splitRunId } from "../plan/identity.js";
import type { RunId } from "../plan/plan.js";

/**
 * Names under `output.parquet.path`. All but the parts start with `_` and do not end in `.parquet`, so that
 * Spark, Hive, Athena, pyarrow and `*.parquet` globs see predictions only.
 */
export interface Layout {
  readonly folder: string;
  readonly runId: RunId;
  readonly success: string;
  readonly manifest: string;
  /** Names the first of the runs that the folder belongs to. */
  readonly claim: string;
  /** Holds a folder for each run. */
  readonly runs: string;
  readonly control: string;
  readonly plan: string;
  readonly temporary: string;
  /** Where parts are committed: for a first run what readers see, for a later one a folder that its finish empties. */
  readonly parts: string;
  /** Takes the `_SUCCESS` of an earlier run while this one's parts are put in place; a folder in it for each writer. */
  readonly withdrawn: string;
  readonly rejects: string;
  /** File name of a span's part. */
  part(span: number): string;
  /**
   * The file of a span's rejected rows, in `rejects`, by the digest of its text: attempts that reject different rows
   * write different files, and the part says which of them counts.
   */
  rejectsOf(span: number, sha256: string): string;
  /** The span of a part's file name, or undefined when it is no part of this run. */
  spanOf(fileName: string): number | undefined;
}

/** So many digits of its digest are in the name of a file of rejects. */
const digestDigits = 16;

const partName = new RegExp(`^part-(\\d{5,})\\.(.+?)(?:\\.[0-9a-f]{${digestDigits}}\\.jsonl|\\.parquet)$`);

export function layoutOf(folder: string, runId: RunId): Layout {
  const runs = join(folder, "_infer-batch");
  const control = join(runs, runId);
  return {
    folder,
    runId,
    success: join(folder, "_SUCCESS"),
    manifest: join(folder, "_manifest.json"),
    claim: join(runs, "run.json"),
    runs,
    control,
    plan: join(control, "plan.json"),
    temporary: join(control, "tmp"),
    parts: isStaged(runId) ? join(control, "parts") : folder,
    withdrawn: join(control, "withdrawn"),
    rejects: join(folder, "_rejects"),
    part: (span) => partFileName(span, runId),
    rejectsOf: (span, sha256) => `part-${paddedSpan(span)}.${runId}.${sha256.slice(0, digestDigits)}.jsonl`,
    spanOf(fileName) {
      const [, span, run] = partName.exec(fileName) ?? [];
      return run === runId && partFileName(Number(span), runId) === fileName ? Number(span) : undefined;
    },
  };
}

function partFileName(span: number, runId: RunId): string {
  return `part-${paddedSpan(span)}.${runId}.parquet`;
}

function paddedSpan(span: number): string {
  return String(span).padStart(5, "0");
}

/** Whether a run's parts are hidden from readers until it is finished: another run's are what they see. */
export function isStaged(runId: RunId): boolean {
  return splitRunId(runId).number > 1;
}

/** The layout of the run that would follow this one. */
export function nextLayout({ folder, runId }: Layout): Layout {
  const { base, number } = splitRunId(runId);
  return layoutOf(folder, numberedRunId(base, number + 1));
}

/** The run that the name of a part, or of a part's rejects, belongs to. */
export function runOfPart(fileName: string): RunId | undefined {
  const run = partName.exec(fileName)?.[2];
  return run === undefined ? undefined : (run as RunId);
}

/** Whether a run is an earlier one of the same job and params. */
export function isEarlier(runId: RunId | undefined, { runId: current }: Layout): boolean {
  return runId !== undefined && runsBetween(current, runId) < 0;
}

/** Whether a run is a later one of the same job and params. */
export function isLater(runId: RunId, { runId: current }: Layout): boolean {
  return runsBetween(current, runId) > 0;
}

/** How many runs `to` came after `from`; NaN: they are not of the same job and params. */
function runsBetween(from: RunId, to: RunId): number {
  const [one, other] = [splitRunId(from), splitRunId(to)];
  return one.base === other.base ? other.number - one.number : Number.NaN;
}
