import { nextRunId, splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { DocumentKind } from "../../stores/ledger.js";

/**
 * Names under `output.parquet.path`: paths on a disk, else URIs. All names but those of parts start with `_` and do
 * not end in `.parquet`, so that Spark, Hive, Athena, pyarrow and `*.parquet` globs see predictions only.
 */
export type Layout = Readonly<ReturnType<typeof layoutOf>>;

/** Digits of the digest in the file name of rejects. */
const digestDigits = 16;

const partName = new RegExp(
  `^part-(\\d{5,})\\.(.+?)(?:\\.[0-9a-f]{${digestDigits}}\\.jsonl|\\.parquet|\\.compared|\\.staged)$`,
);

/** The layout of a planned run. */
export function plannedLayout(folder: string, { runId, staged }: Pick<Plan, "runId" | "staged">): Layout {
  return layoutOf(folder, runId, staged || isLaterRun(runId));
}

/**
 * The layout of a run. Whether a first run is staged says only its plan; where that is unknown, names of parts are those
 * of a run that is not.
 */
export function layoutOf(folder: string, runId: RunId, staged = isLaterRun(runId)) {
  const below = folder === "/" ? "" : folder;
  const runs = `${below}/_infer-batch`;
  const control = `${runs}/${runId}`;
  const staging = `${control}/parts`;
  const parts = staged ? staging : folder;
  // Below a folder of parts, a pattern such as `**/*.parquet` would find them, too.
  const extension = folder.endsWith("/_challenger") ? "compared" : "parquet";
  const part = (span: number): string => partFileName(span, runId, extension);
  const committedName = (span: number): string => partFileName(span, runId, staged ? "staged" : extension);
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
    /** `run.json`, which names the first of the runs that the folder belongs to. */
    claim: `${runs}/run.json`,
    /** The folder that holds a folder for each run. */
    runs,
    control,
    plan: `${control}/plan.json`,
    document: (name: DocumentKind<unknown>["name"]): string => `${control}/${name}.json`,
    /** The profile of the run, which stays after it is published. */
    profile: `${control}/profile.json`,
    temporary: `${control}/tmp`,
    /** The answers that attempts have paid for, until the run is over. */
    answers: `${control}/answers`,
    /**
     * Whether the run's parts are hidden from readers until it is published: those of a run after another one, since
     * readers see the earlier run's until then, and those of a run that waits for a verdict.
     */
    staged,
    /** The folder that holds a staged run's parts until its finish empties it. */
    staging,
    /** The folder where parts are committed: `staging` for a staged run, else the output folder. */
    parts,
    /** Takes the `_SUCCESS` of an earlier run while this run's parts are moved into place. Each writer has a folder in it. */
    withdrawn: `${control}/withdrawn`,
    rejects: `${below}/_rejects`,
    part,
    /** Path where a span's part is committed. That of a staged run has a name that no `*.parquet` glob matches. */
    committedPart,
    /** Paths that a span's part may have: the committed one, then the final one. */
    pathsOf: (span: number): readonly string[] => [...new Set([committedPart(span), `${below}/${part(span)}`])],
    /**
     * File name of a span's rejected rows, in `rejects`. It contains the digest of its text: attempts that reject
     * different rows write different files, and the part's label says which one counts.
     */
    rejectsOf: (span: number, sha256: string): string =>
      `part-${paddedSpan(span)}.${runId}.${sha256.slice(0, digestDigits)}.jsonl`,
    /** The span of a part's file name; undefined for a name that is not a part of this run. */
    spanOf: (fileName: string) => isNamed(fileName, part),
    /** The same for a file name in `parts`. */
    committedSpanOf: (fileName: string) => isNamed(fileName, committedName),
  };
}

function partFileName(span: number, runId: RunId, extension: string): string {
  return `part-${paddedSpan(span)}.${runId}.${extension}`;
}

function paddedSpan(span: number): string {
  return String(span).padStart(5, "0");
}

function isLaterRun(runId: RunId): boolean {
  return splitRunId(runId).number > 1;
}

/** The layout of the run that would follow this one. */
export function nextLayout({ folder, runId }: Layout): Layout {
  return layoutOf(folder, nextRunId(runId));
}

/** The run that a file name of a part or of rejects belongs to. */
export function runOfPart(fileName: string): RunId | undefined {
  const run = partName.exec(fileName)?.[2];
  return run === undefined ? undefined : (run as RunId);
}

/** Whether a run came before this one, for the same job and params. */
export function isEarlier(runId: RunId | undefined, { runId: current }: Layout): boolean {
  return runId !== undefined && runsBetween(current, runId) < 0;
}

/** Whether a run came after this one, for the same job and params. */
export function isLater(runId: RunId, { runId: current }: Layout): boolean {
  return runsBetween(current, runId) > 0;
}

/** Whether a run has the same job and params as this one. */
export function isSameJob(runId: RunId, { runId: current }: Layout): boolean {
  return !Number.isNaN(runsBetween(current, runId));
}

/** NaN where job or params differ. */
function runsBetween(from: RunId, to: RunId): number {
  const [one, other] = [splitRunId(from), splitRunId(to)];
  return one.base === other.base ? other.number - one.number : Number.NaN;
}
