import type { ColumnType, OutputRows, RejectedRow, RejectReason } from "../columnar/types.js";
import type { Progress } from "./progress.js";
import { createScoreSketch, type ScoreSketch, type ScoreSummary } from "./score-sketch.js";
import { createStageTimes, type Stage, type StageTimes } from "./stage-times.js";
import { createTimeline, type Timeline } from "./timeline.js";

/** Who attempts what. */
export interface AttemptAbout {
  /** The spec's name. */
  readonly job: string;
  readonly worker: { readonly index: number; readonly count: number };
  readonly params: Readonly<Record<string, string>>;
  /** Of this program and what it stands on, by name. */
  readonly versions: Readonly<Record<string, string>>;
  /** The target, as messages name it. */
  readonly output: string;
}

/** The run that an attempt works on, as its plan has it. */
export interface RunFacts {
  readonly runId: string;
  readonly planId: string;
  readonly rows: number;
  readonly spans: number;
  readonly commitRows: number;
  readonly shards: number;
  readonly shardBytes: number;
  readonly modelUri: string;
  readonly modelSha256: string;
  readonly predicted: readonly { readonly name: string; readonly type: ColumnType }[];
}

export interface EngineFacts {
  readonly provider: string;
  /** Those that were asked for before it and that the machine cannot run. */
  readonly missing: readonly string[];
  readonly sessions: number;
  /** Of the next batch. */
  readonly batchRows: () => number;
}

/** A span that this attempt committed. */
export interface CommittedSpan {
  readonly rows: OutputRows;
  readonly rejects: readonly RejectedRow[];
  readonly filtered: number;
  /** Rows that took the prediction of a row before them. */
  readonly repeated: number;
}

/** Of the spans that this attempt committed. */
export interface AttemptCounts {
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  /** Of those that were scored, the ones that took the prediction of a row before them. */
  readonly rowsDeduplicated: number;
  readonly spansCommitted: number;
}

/** What an attempt has done so far, for all who tell of it. `run/` fills it in; its size does not grow with the run. */
export interface AttemptRecord {
  readonly about: AttemptAbout;
  readonly stages: StageTimes;
  /** When this process began, in milliseconds from 1970. */
  readonly startedMs: number;
  /** How long it waited for its input; set while it waits. */
  inputWaitSeconds: number;
  readonly run: RunFacts | undefined;
  /** undefined where nothing was to be scored. */
  readonly engine: EngineFacts | undefined;
  readonly counts: AttemptCounts;
  readonly rejectReasons: ReadonlyMap<RejectReason, number>;
  /** Units that workers did not read to their end, by why: the main thread read the rest of their rows. */
  readonly unitsReadAgain: ReadonlyMap<string, number>;
  /** Rows that came back from the model or were left out. */
  readonly timeline: Timeline;
  /** From the first row until the run is finished, or until now. */
  readonly seconds: number;
  /** Of that time, the share that a session of the model spent on rows; null where there was none. */
  readonly engineBusy: number | null;
  scores(): readonly ScoreSummary[];
  /** The plan stands. */
  takesUp(run: RunFacts): void;
  /** Scoring begins, or what is done in its place where nothing is left to be scored. */
  begins(engine?: EngineFacts): void;
  done(rows: number): void;
  /** A worker did not read a unit to its end. */
  unitFailed(kind: string): void;
  committed(span: CommittedSpan): void;
  ends(): void;
}

export interface RecordOptions {
  readonly about: AttemptAbout;
  readonly nowMs: () => number;
  /** Milliseconds from 1970. */
  readonly dateMs: () => number;
  /** Told of each piece of a stage. */
  readonly onStage?: ((stage: Stage, startedMs: number, endedMs: number) => void) | undefined;
}

export function createAttemptRecord({ about, nowMs, dateMs, onStage }: RecordOptions): AttemptRecord {
  const stages = createStageTimes(nowMs, onStage);
  const timeline = createTimeline();
  const tally = createTally();
  const scores = createScores();
  const known: { run?: RunFacts; engine?: EngineFacts | undefined; beganMs?: number; endedMs?: number } = {};
  const ranMs = (): number => (known.beganMs === undefined ? 0 : (known.endedMs ?? nowMs()) - known.beganMs);
  return {
    about,
    stages,
    startedMs: dateMs(),
    ...tally.facts,
    timeline,
    scores: scores.summaries,
    inputWaitSeconds: 0,
    get run() {
      return known.run;
    },
    get engine() {
      return known.engine;
    },
    get seconds() {
      return ranMs() / 1000;
    },
    get engineBusy() {
      const available = (known.engine?.sessions ?? 0) * ranMs();
      return available === 0 ? null : stages.ms.infer / available;
    },
    takesUp(run) {
      known.run = run;
      scores.expect(run.predicted);
    },
    begins(engine) {
      known.engine = engine;
      known.beganMs = nowMs();
    },
    done(rows) {
      timeline.add(ranMs(), rows);
    },
    committed(span) {
      tally.add(span);
      scores.add(span.rows);
    },
    ends() {
      known.endedMs = nowMs();
    },
  };
}

type TallyFacts = Pick<AttemptRecord, "counts" | "rejectReasons" | "unitsReadAgain" | "unitFailed">;

interface Tally {
  readonly facts: TallyFacts;
  add(span: CommittedSpan): void;
}

function createTally(): Tally {
  const counts = { rowsScored: 0, rowsRejected: 0, rowsFiltered: 0, rowsDeduplicated: 0, spansCommitted: 0 };
  const rejectReasons = new Map<RejectReason, number>();
  const unitsReadAgain = new Map<string, number>();
  const unitFailed = (kind: string): void => {
    unitsReadAgain.set(kind, (unitsReadAgain.get(kind) ?? 0) + 1);
  };
  return {
    facts: { counts, rejectReasons, unitsReadAgain, unitFailed },
    add({ rows, rejects, filtered, repeated }) {
      counts.rowsScored += rows.rowCount;
      counts.rowsRejected += rejects.length;
      counts.rowsFiltered += filtered;
      counts.rowsDeduplicated += repeated;
      counts.spansCommitted += 1;
      for (const { reason } of rejects) {
        rejectReasons.set(reason, (rejectReasons.get(reason) ?? 0) + 1);
      }
    },
  };
}

/** More columns than anybody would look at; each costs 128 KiB. */
const sketchedColumns = 32;

interface Scores {
  expect(predicted: RunFacts["predicted"]): void;
  add(rows: OutputRows): void;
  readonly summaries: () => readonly ScoreSummary[];
}

function createScores(): Scores {
  const sketches = new Map<string, ScoreSketch>();
  return {
    expect(predicted) {
      for (const { name, type } of predicted.slice(0, sketchedColumns)) {
        const sketch = createScoreSketch(name, type);
        if (sketch !== undefined) {
          sketches.set(name, sketch);
        }
      }
    },
    add({ columns }) {
      for (const { name, column } of columns) {
        sketches.get(name)?.add(column);
      }
    },
    summaries: () => [...sketches.values()].flatMap((sketch) => sketch.summary() ?? []),
  };
}

/** Tells the record, too. */
export function recordedProgress(progress: Progress, record: AttemptRecord): Progress {
  return {
    start(rows) {
      progress.start(rows);
    },
    scored(rows) {
      record.done(rows);
      progress.scored(rows);
    },
    stop() {
      progress.stop();
    },
  };
}
