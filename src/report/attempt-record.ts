import { type SpanProfile, mergeProfiles, noRows } from "../checks/profile/profile.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import type { RejectReason, RejectedRow } from "../columns/types.js";
import { type InputState, type ModelOrigin, type Plan, unwatched } from "../run/plan/plan.js";
import type { Worker } from "../run/plan/spans.js";
import { type ScoreSummary, scoreSummary } from "./column-stats.js";
import { type AttemptWork, type DueCall, type ServerReport, type SpendingReport, workFields } from "./report.js";
import { type Stage, type StageTimes, createStageTimes, secondsByStage } from "./stage-times.js";
import type { ReadersView } from "../run/lifecycle/published-run.js";
import type { RunComparison } from "../run/lifecycle/erasure.js";
import type { RunVerdict } from "../run/lifecycle/lifecycle.js";

/** The profile of a run whose spans are all committed, with the runs and the checks that it is compared by. */
export interface RunReview {
  readonly profile: RunProfile;
  /**
   * What the run is compared with, the latest last: published runs of the series, or the run of the file `reference`.
   */
  readonly earlier: readonly RunProfile[];
  /** What readers have while the run is held; undefined: it is not held, or it is not known. */
  readonly readers?: ReadersView | undefined;
  /** The params of the run, and which of them is its logical date. */
  readonly plan: Pick<Plan, "params" | "dateParam">;
  /** The file with the profile that the run is compared with; undefined: it is compared with published runs. */
  readonly reference?: string | undefined;
  /** The last published runs of the series before this one, the latest last; undefined: they are not known. */
  readonly history?: readonly RunProfile[] | undefined;
  /** How long this run and earlier ones were scored, by run id, as `history` says; undefined: it is not known. */
  readonly seconds?: ReadonlyMap<string, number> | undefined;
  /** How a second model agrees; undefined: the run has none. */
  readonly comparison?: RunComparison | undefined;
  /** The verdict; undefined: the run has no checks. */
  readonly verdict: RunVerdict | undefined;
}

/** Row counts over time, in at most 120 steps of equal width, which doubles when they are full. */
export interface Timeline {
  readonly widthMs: number;
  /** The rows of each step. */
  readonly rows: readonly number[];
  /** Adds rows that were done at `atMs`, measured from the start. */
  add(atMs: number, rows: number): void;
}

const maxSteps = 120;
const firstWidthMs = 100;

/** Makes an empty timeline. @public so that tests reach it */
export function createTimeline(): Timeline {
  let widthMs = firstWidthMs;
  let steps: number[] = [];
  return {
    get widthMs() {
      return widthMs;
    },
    get rows() {
      return steps;
    },
    add(atMs, rows) {
      while (atMs >= widthMs * maxSteps) {
        widthMs *= 2;
        steps = Array.from({ length: Math.ceil(steps.length / 2) }, (_, index) => {
          return (steps[2 * index] ?? 0) + (steps[2 * index + 1] ?? 0);
        });
      }
      const step = Math.max(0, Math.floor(atMs / widthMs));
      while (steps.length <= step) {
        steps.push(0);
      }
      steps[step] = (steps[step] ?? 0) + rows;
    },
  };
}

/** The identity of an attempt. */
export interface AttemptInfo {
  readonly job: string;
  readonly worker: { readonly index: number; readonly count: number };
  readonly params: Readonly<Record<string, string>>;
  /** The command line that carries out the run again; absent: it is not known. */
  readonly command?: string | undefined;
  /** The same although a newer run has published to the table; absent: no newer run can prevent it, or it is not known. */
  readonly olderCommand?: string | undefined;
  /** Versions of this program and its libraries, by name. */
  readonly versions: Readonly<Record<string, string>>;
  /** The target's name in messages. */
  readonly output: string;
}

/** The run of an attempt, from its plan. */
export interface RunInfo {
  readonly runId: string;
  readonly planId: string;
  readonly rows: number;
  readonly spans: number;
  readonly commitRows: number;
  readonly shards: number;
  readonly shardBytes: number;
  readonly modelUri: string;
  readonly modelSha256: string;
  /** The version of the model; absent: it has none. */
  readonly modelVersion?: string | undefined;
  readonly modelOrigin?: ModelOrigin | undefined;
  readonly inputColumns: readonly NamedType[];
  readonly outputColumns: readonly NamedType[];
}

/** A column, with its type as messages name it. */
export interface NamedType {
  readonly name: string;
  readonly type: string;
}

/** What scores the rows of an attempt. */
export interface EngineInfo {
  readonly provider: string;
  /** Providers that the spec prefers and that this machine cannot run. */
  readonly missing: readonly string[];
  /** Who computes the model's trees, and why it is ONNX Runtime; null: it has none, or too few rows came. */
  readonly trees: () => string | null;
  readonly sessions: number;
  readonly batchRows: () => number;
  /** The requests so far to the server that has the model; undefined: the model is on this machine. */
  readonly server?: (() => ServerReport) | undefined;
  /** What answers cost so far; undefined: predictions are free. */
  readonly spending?: (() => SpendingReport) | undefined;
}

/** Features that are NULL in more rows than the run accepts, according to the statistics of the shards. */
export interface NullFeatures {
  /** The warning in the log: how often each feature is NULL, and what to do. */
  readonly text: string;
  /** How many rows are NULL in a column, by its name. */
  readonly nulls: ReadonlyMap<string, number>;
  /** All rows of the input. */
  readonly rows: number;
}

interface CommittedSpan {
  readonly rowCount: number;
  readonly profile: SpanProfile;
  readonly rejects: readonly RejectedRow[];
  readonly filtered: number;
  readonly reused: number;
  readonly byTrees: number;
}

interface AttemptCounts {
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  readonly rowsReused: number;
  readonly rowsByTrees: number;
  readonly spansCommitted: number;
}

/** What an attempt has done so far, for reports and metrics. `run/` updates it; its size does not grow with the run. */
export interface AttemptRecord {
  readonly info: AttemptInfo;
  readonly stages: StageTimes;
  /** When this process started, in milliseconds since 1970. */
  readonly startedMs: number;
  /** Seconds spent waiting for input; updated during the wait. */
  inputWaitSeconds: number;
  /** How far a topic is read, once its run is published. */
  inputState: InputState;
  /** Milliseconds in which rows were compared with those of an earlier run, all threads together. */
  comparingMs: number;
  readonly run: RunInfo | undefined;
  /** undefined before scoring starts, and when there is nothing to score. */
  readonly engine: EngineInfo | undefined;
  readonly counts: AttemptCounts;
  readonly rejectReasons: ReadonlyMap<RejectReason, number>;
  /** Units that workers could not read to the end, by reason; the main thread read the rest of their rows. */
  readonly unitsReadAgain: ReadonlyMap<string, number>;
  /** Rows over time that came back from the model or were left out. */
  readonly timeline: Timeline;
  /** Seconds from the start of scoring until the run is finished, or until now. */
  readonly seconds: number;
  /** The share of that time in which sessions were busy; null without an engine. */
  readonly engineBusy: number | null;
  /** The profile of the predictions so far; undefined: there are none. */
  profile(): SpanProfile | undefined;
  /** Summaries of the predictions so far, one for each column. */
  scores(): readonly ScoreSummary[];
  /** The profile of the run and its baseline, once all its spans are committed. */
  readonly review: RunReview | undefined;
  /** Sets the run, once its plan exists. */
  setRun(run: RunInfo): void;
  /** Sets the profile and the checks of the run, once all its spans are committed; undefined: another run takes its place. */
  setReview(review: RunReview | undefined): void;
  /** Starts the clock of `seconds`; without an engine when nothing is left to score. */
  startScoring(engine?: EngineInfo): void;
  /** Features that are NULL in more rows than the run accepts; undefined: none is known, or the attempt has planned no run. */
  nullFeatures: NullFeatures | undefined;
  /** The rows that this attempt will score; undefined: not known yet. */
  rowsToScore: number | undefined;
  /**
   * Records at the target that the run is late, and returns the call of `report.on_late` that is due, if one is;
   * undefined: it is not known which run the attempt carries out, or its target records nothing of it.
   */
  lateCall: ((text: string) => Promise<DueCall | undefined>) | undefined;
  addRows(rows: number): void;
  addFailedUnit(kind: string): void;
  /** Adds a committed span to the counts and summaries. */
  addSpan(span: CommittedSpan): void;
  /** Stops the clock of `seconds`. */
  finish(): void;
}

/** What a record starts with. */
export interface RecordOptions {
  readonly info: AttemptInfo;
  readonly nowMs: () => number;
  /** Milliseconds since 1970. */
  readonly dateMs: () => number;
  /** Called for each piece of work of a stage. */
  readonly onStage?: ((stage: Stage, startedMs: number, endedMs: number) => void) | undefined;
}

/** Makes an empty record. */
export function createAttemptRecord({ info, nowMs, dateMs, onStage }: RecordOptions): AttemptRecord {
  const stages = createStageTimes(nowMs, onStage);
  const counts = { rowsScored: 0, rowsRejected: 0, rowsFiltered: 0, rowsReused: 0, rowsByTrees: 0, spansCommitted: 0 };
  const rejectReasons = new Map<RejectReason, number>();
  const unitsReadAgain = new Map<string, number>();
  let [beganMs, endedMs]: (number | undefined)[] = [];
  let scored: SpanProfile | undefined;
  const ranMs = (): number => (beganMs === undefined ? 0 : (endedMs ?? nowMs()) - beganMs);
  const record: { -readonly [K in keyof AttemptRecord]: AttemptRecord[K] } = {
    info,
    stages,
    startedMs: dateMs(),
    counts,
    rejectReasons,
    unitsReadAgain,
    timeline: createTimeline(),
    run: undefined,
    review: undefined,
    engine: undefined,
    inputWaitSeconds: 0,
    inputState: unwatched,
    comparingMs: 0,
    nullFeatures: undefined,
    rowsToScore: undefined,
    lateCall: undefined,
    get seconds() {
      return ranMs() / 1000;
    },
    get engineBusy() {
      const available = (record.engine?.sessions ?? 0) * ranMs();
      return available === 0 ? null : stages.ms.infer / available;
    },
    profile: () => scored,
    scores: () => [...(scored?.columns ?? [])].flatMap(([name, profile]) => scoreSummary(name, profile) ?? []),
    setRun: (run) => void (record.run = run),
    setReview: (review) => void (record.review = review),
    startScoring(engine) {
      record.engine = engine;
      beganMs = nowMs();
      endedMs = undefined; // set by a run that this attempt only published
    },
    addRows: (rows) => record.timeline.add(ranMs(), rows),
    addFailedUnit: (kind) => void unitsReadAgain.set(kind, (unitsReadAgain.get(kind) ?? 0) + 1),
    addSpan({ rowCount, rejects, filtered, reused, byTrees, profile: { rows, bins, columns } }) {
      counts.rowsScored += rowCount;
      counts.rowsRejected += rejects.length;
      counts.rowsFiltered += filtered;
      counts.rowsReused += reused;
      counts.rowsByTrees += byTrees;
      counts.spansCommitted += 1;
      for (const { reason } of rejects) {
        rejectReasons.set(reason, (rejectReasons.get(reason) ?? 0) + 1);
      }
      const profile = { ...noRows, rows, bins, columns };
      scored = scored === undefined ? profile : mergeProfiles(scored, profile);
    },
    finish: () => void (endedMs = nowMs()),
  };
  return record;
}

/** The work of an attempt so far. */
export function workOf(record: AttemptRecord): AttemptWork {
  const { engine } = record;
  const { spansCommitted: _, ...counts } = record.counts;
  return {
    ...counts,
    inputWaitSeconds: record.inputWaitSeconds,
    seconds: record.seconds,
    batchSize: engine?.batchRows() ?? null,
    provider: engine?.provider ?? null,
    providersMissing: engine?.missing ?? [],
    trees: engine?.trees() ?? null,
    engineBusy: record.engineBusy,
    stageSeconds: engine === undefined ? null : secondsByStage(record.stages),
    unitsReadAgain: Object.fromEntries(record.unitsReadAgain),
    server: engine?.server?.(),
    spending: engine?.spending?.(),
  };
}

/** What an attempt did, as plain JSON, for the manifest of the run and for pings. */
export function attemptJson(record: AttemptRecord): Readonly<Record<string, unknown>> {
  const { info, counts } = record;
  return {
    worker: info.worker.index,
    workers: info.worker.count,
    started_at: new Date(record.startedMs).toISOString(),
    ...workFields(workOf(record)),
    rejects_by_reason: Object.fromEntries(record.rejectReasons),
    spans_committed: counts.spansCommitted,
    scores: record.scores(),
    versions: info.versions,
  };
}

const mentionedSeconds = 1;

/**
 * Compares what reuse of predictions cost an attempt with what it saved: the time in the model that the rows which took
 * stored predictions would have needed, as long as those that were scored. Returns a message where it cost more.
 */
export function reuseCostText({
  counts: { rowsScored, rowsReused },
  comparingMs,
  stages: { ms },
}: Pick<AttemptRecord, "counts" | "comparingMs" | "stages">): string | undefined {
  const modelRows = rowsScored - rowsReused;
  if (rowsReused === 0 || modelRows <= 0) {
    return undefined;
  }
  const spent = comparingMs / 1000;
  const saved = (ms.infer / 1000 / modelRows) * rowsReused;
  return spent - saved < mentionedSeconds
    ? undefined
    : `reuse took longer than it saved: comparing rows took ${spent.toFixed(1)} s, and the model would have scored those that were reused in ${saved.toFixed(1)} s; without reuse, the job is faster`;
}

/** Returns the file in which a worker reports: the one that the spec names, or of several workers one each. */
export function workerFile(path: string, { index, count }: Worker): string {
  const [stem, extension] = splitAtExtension(path);
  return count === 1 ? path : `${stem}.worker-${index}${extension}`;
}

/** Whether a file is the one that the spec names, or that of one of several workers. */
export function isWorkerFile(file: string, path: string): boolean {
  const [stem, extension] = splitAtExtension(path);
  return file === path || (file.startsWith(stem) && /^\.worker-\d+$/.test(between(file, stem, extension)));
}

function between(file: string, stem: string, extension: string): string {
  return file.endsWith(extension) ? file.slice(stem.length, file.length - extension.length) : "";
}

function splitAtExtension(path: string): readonly [string, string] {
  const extension = /[^/.][^/]*?(\.[^./]*)$/.exec(path)?.[1] ?? "";
  return [path.slice(0, path.length - extension.length), extension];
}
