import { numberedRunId, splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";

/**
 * Names under `output.parquet.path`, as paths on a disk or as URIs in S3. All but the parts start with `_` and do not end in `.parquet`, so that
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
  /** Where a span's part is committed; for a later run, a name in `parts` that no `*.parquet` matches. */
  committedPart(span: number): string;
  /** Where a span's part may be: where it is committed, then where it stays. */
  placesOf(span: number): readonly string[];
  /**
   * The file of a span's rejected rows, in `rejects`, by the digest of its text: attempts that reject different rows
   * write different files, and the part says which of them counts.
   */
  rejectsOf(span: number, sha256: string): string;
  /** The span of a part's file name, or undefined when it is no part of this run. */
  spanOf(fileName: string): number | undefined;
  /** The same of a file in `parts`. */
  committedSpanOf(fileName: string): number | undefined;
}

/** So many digits of its digest are in the name of a file of rejects. */
const digestDigits = 16;

const partName = new RegExp(`^part-(\\d{5,})\\.(.+?)(?:\\.[0-9a-f]{${digestDigits}}\\.jsonl|\\.parquet|\\.staged)$`);

export function layoutOf(folder: string, runId: RunId): Layout {
  const below = folder === "/" ? "" : folder;
  const runs = `${below}/_infer-batch`;
  const control = `${runs}/${runId}`;
  const staged = isStaged(runId);
  const parts = staged ? `${control}/parts` : folder;
  const committedName = (span: number): string => {
    const name = partFileName(span, runId);
    return staged ? name.replace(/parquet$/, "staged") : name;
  };
  const committedPart = (span: number): string => `${staged ? parts : below}/${committedName(span)}`;
  const isNamed = (fileName: string, nameOf: (span: number) => string): number | undefined => {
    const [, digits, run] = partName.exec(fileName) ?? [];
    return run === runId && nameOf(Number(digits)) === fileName ? Number(digits) : undefined;
  };
  return {
    folder,
    runId,
    success: `${below}/_SUCCESS`,
    manifest: `${below}/_manifest.json`,
    claim: `${runs}/run.json`,
    runs,
    control,
    plan: `${control}/plan.json`,
    temporary: `${control}/tmp`,
    parts,
    withdrawn: `${control}/withdrawn`,
    rejects: `${below}/_rejects`,
    part: (span) => partFileName(span, runId),
    committedPart,
    placesOf: (span) => [...new Set([committedPart(span), `${below}/${partFileName(span, runId)}`])],
    rejectsOf: (span, sha256) => `part-${paddedSpan(span)}.${runId}.${sha256.slice(0, digestDigits)}.jsonl`,
    spanOf: (fileName) => isNamed(fileName, (span) => partFileName(span, runId)),
    committedSpanOf: (fileName) => isNamed(fileName, committedName),
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

/** Whether a run is of the same job and params: this one, or one before or after it. */
export function isSameJob(runId: RunId, { runId: current }: Layout): boolean {
  return !Number.isNaN(runsBetween(current, runId));
}

/** How many runs `to` came after `from`; NaN: they are not of the same job and params. */
function runsBetween(from: RunId, to: RunId): number {
  const [one, other] = [splitRunId(from), splitRunId(to)];
  return one.base === other.base ? other.number - one.number : Number.NaN;
}
