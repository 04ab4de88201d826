import type { ComparedDay } from "../checks/checks.js";
import type { Aggregates } from "../checks/profile/profile.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import type { Agreement, JoinRequest } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";
import type { Column, OutputRows, SourceColumn, TypedColumn } from "../columns/types.js";
import type { Decoder, ShardFile } from "../formats/format.js";
import type { CountTokens, Engine, LookAtPaid } from "../models/engine.js";
import type { FoundModel, Model, ModelPin, TokenizerFile } from "../models/places/place.js";
import { JobError, reworded } from "../base/errors.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import type { ListedShard } from "../run/plan/compare.js";
import type { Changes, PinnedTokenizer, PlannedDay, RunId } from "../run/plan/plan.js";
import type { AttemptRecord } from "../report/attempt-record.js";
import type { Progress } from "../report/progress.js";
import type { Sink } from "../targets/target.js";
import type { LocalParts, RunRows, StoredFiles, StoredTable } from "../run/lifecycle/span-record.js";
import type { OpenShard, Source } from "../sources/source.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { LimitedRun } from "../job/jobfile/load.js";
import type { DecodeThreads } from "./workers/slice-reader.js";
import type { Worker } from "../run/plan/spans.js";

/** A spec, and where its keys stand in its file. */
export interface PlacedSpec {
  readonly spec: JobSpec;
  /** Returns the place of a key in the spec: "job.yaml:4:9: input.path". */
  readonly where: (path: readonly string[]) => string;
}

/** The job of a spec, with the names and command lines that messages have for it. */
export interface Job extends PlacedSpec {
  /** The id of the first run of the job with these params. */
  readonly base: RunId;
  /** The param whose value is the run's logical date; undefined: the job has none. */
  readonly dateParam: string | undefined;
  /** Plans only the first rows of the input; the spec is that of `limitedSpec`. */
  readonly limited?: LimitedRun | undefined;
  /** The command line that carries out the run of these params; or that decides on one of their runs, shows the last, or lists all. */
  readonly command: (
    params: Readonly<Record<string, string>>,
    other?:
      | { readonly verb: "approve" | "discard"; readonly runId: string }
      | { readonly verb: "stats" | "status" | "rejects" | "history" },
  ) => string;
  /** The path of an input file, as a command of the person names it who reads the message. */
  readonly pathOf: (uri: string) => string;
  /** The HTML page of this attempt, as messages name it; undefined: it writes none. */
  readonly page?: string | undefined;
}

/** Reads the files that a spec names. */
export interface Input {
  readonly source: Source;
  /** What the run reads that is to be planned; undefined: all of its input. */
  readonly chain: ChainPosition | undefined;
  /** Reads files of these folders only. */
  readonly openDecoder: (folders: readonly string[]) => Promise<Decoder>;
  /** Reads the file of `checks.golden`, which is Parquet, from these folders only. */
  readonly openGoldenReader: (folders: readonly string[]) => Promise<GoldenReader>;
  /** Reads the text of a file of the spec. @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID for a file that is too large */
  readonly readGiven: (path: string, key: readonly string[]) => Promise<string>;
  /** Returns how many files to open at once: at most `most`, and fewer near the limit of open files. */
  readonly filesAtOnce: (most: number) => number;
  readonly decodeWorkers: DecodeThreads;
}

/** Finds the models of a spec, and opens engines for them. */
export interface Models {
  /** Starts what takes long to load, before it is known with which model rows will be scored. */
  readonly prepare: () => void;
  /** Finds the spec's model. @param planned the model that the plan of an unfinished run pins */
  readonly resolveModel: (planned?: ModelPin) => Promise<FoundModel>;
  /** Finds a tokenizer of the spec. @param planned the same one, as the plan of an unfinished run pins it */
  readonly resolveTokenizer: (uri: string, planned?: PinnedTokenizer) => Promise<TokenizerFile>;
  /** Loads the tokenizer that the spec names for estimates; undefined: it names none. */
  readonly loadTokenCounter?: (() => Promise<CountTokens>) | undefined;
  readonly openEngine: (model: Model, need: EngineNeed) => Promise<Engine>;
  /** Looks at an unfinished run; undefined: predictions are free. */
  readonly lookAtPaid?: LookAtPaid | undefined;
  readonly earlierModels: EarlierModels;
  /** The batch limits that earlier runs found. */
  readonly batchLimits: BatchLimitCache;
}

/** Which share of a run an attempt takes, and what it may begin. */
export interface AttemptShare {
  readonly worker: Worker;
  /** Take over spans of other workers when the own share is done. */
  readonly steal: boolean;
  /** Open the next run if the latest one is finished or its pins no longer hold. */
  readonly newRun: boolean;
  /** A new run reuses predictions, too. Default: it scores all rows. */
  readonly reuse?: boolean | undefined;
  /** Other runs of the job that the same command carries out. The command does not warn that they are unfinished. */
  readonly runsOfCommand?: ReadonlySet<string> | undefined;
}

/** This process at work on a run: who it is, its share, its clocks, and what stops it. */
export interface Attempt extends AttemptShare {
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
  /** Whether the process of an attempt has ended, as far as this machine knows. */
  readonly isDead: (writer: string) => boolean;
  /** Who uses this program, for decisions: a scheduler's task or a user. */
  readonly actingUser: () => string;
  /** Name and version of this program. */
  readonly program: string;
  /** Aborted by a signal; its reason is the JobError to end with. */
  readonly signal: AbortSignal;
  readonly nowMs: () => number;
  /** The time of day, in milliseconds since 1970; `nowMs` is a clock that is never set. */
  readonly dateMs: () => number;
  /** @throws the signal's reason when the job is stopped during the pause */
  readonly sleep: (ms: number) => Promise<void>;
}

/** What people learn of an attempt. */
export interface Reporter {
  readonly log: Log;
  readonly progress: Progress;
  /** The record of this attempt, which all reports are made from. */
  readonly record: AttemptRecord;
}

/** Asks DuckDB about rows of the output. */
export interface Queries {
  /**
   * Opens the conditions of `checks.sql` over output columns. @throws JobError SPEC_INVALID with the place of the
   * condition in the spec
   */
  readonly openAggregates: (
    conditions: Readonly<Record<string, string>>,
    columns: readonly TypedColumn[],
  ) => Promise<Aggregates>;
  /** Opens the rows of an earlier run. */
  readonly openStoredRows: (request: StoredRowsRequest) => Promise<StoredRowsReader>;
  /** Opens a DuckDB that joins files of these folders. */
  readonly openRowJoiner: (folders: readonly string[]) => Promise<RowJoiner>;
}

/** Where a run of a chain begins to read, and up to where. */
export interface ChainPosition extends Pick<Changes, "from"> {
  /** null: up to now. */
  readonly to: string | null;
  /** Stores that the run reads up to a position. Returns what is stored: another attempt may have been first. */
  claim(to: string, by: { readonly at: string; readonly writer: string }): Promise<Pick<Changes, "from" | "to">>;
  /** Stores that nothing came up to a position, where the next look for rows begins. */
  pass(to: string): Promise<void>;
  /** What the run is judged with, if it is planned at this time. undefined: with nothing. */
  planDay(at: Date): Promise<PlannedDay | undefined>;
  /** The rows of the day so far, with those of the run, and those of earlier days until the same time. */
  readDay(planned: PlannedDay, own: RunProfile): Promise<ComparedDay>;
  /** All rows, in place of a range that cannot be read any more. @throws JobError USAGE where rows of earlier runs stay */
  whole(sink: Pick<Sink, "planTarget" | "target">): ChainPosition;
}

/**
 * A job with all that its spec names, opened. Each resource is closed by the code that opens it. A function takes the parts
 * that it uses; all of them, where it carries out a step that needs more than three.
 */
export interface OpenedJob {
  readonly job: Job;
  readonly sink: Sink;
  readonly input: Input;
  readonly models: Models;
  readonly attempt: Attempt;
  readonly reporter: Reporter;
  readonly queries: Queries;
  /** How much memory rows may take on their way. */
  readonly memory: MemoryBudget;
  /**
   * Opens the job that scores the same rows with a second model, and its target; where the spec names none, that of an earlier
   * one.
   */
  readonly openSecondJob: () => Promise<SecondJob & AsyncDisposable>;
}

/** What differs from the job whose rows are scored: another model, another target, another spec. */
export interface SecondJob {
  readonly job: PlacedSpec & { readonly base: RunId };
  readonly sink: Sink;
  readonly models: Models;
  readonly reporter: Reporter;
}

/** Makes shards readable. */
export interface ShardFiles {
  open(shard: ListedShard): Promise<ShardFile & Pick<OpenShard, "partitions"> & AsyncDisposable>;
}

/** Joins two sets of rows, A and B, by their keys. Memory is bounded. */
export interface RowJoiner extends AsyncDisposable {
  /** Loads rows in place of those that the side had; returns its columns. */
  load(side: "a" | "b", rows: StoredTable | LocalParts): Promise<readonly RowColumn[]>;
  /** Adds rows to a side that nothing was loaded into. */
  add(side: "a" | "b", rows: OutputRows): Promise<void>;
  /**
   * Loads two runs of the same input. The rows of B have the column _row with their numbers; where A has spans, the numbers
   * of its rows follow from these and from which rows were rejected. Returns how many rows only B has rejected, by reason.
   * @throws Error if they do not fit
   */
  loadRuns(a: RunRows, b: RunRows): Promise<Readonly<Record<string, number>>>;
  /** Compares the rows of keys that are once in both. What it shows of them depends on their keys alone. */
  compare(request: JoinRequest): Promise<Pick<Agreement, "rows" | "columns">>;
  /** Judges the predictions of A by the labels of B. */
  evaluate(request: EvaluationRequest): Promise<Evaluated>;
}

/** A column of a side. Type undefined: no type that is known. */
export type RowColumn = Pick<SourceColumn, "name" | "type">;

/** A model as the profile of an earlier run names it. */
interface EarlierModel extends ModelPin {
  readonly uri: string;
}

/** Finds the models of earlier runs. */
export interface EarlierModels {
  /**
   * Finds a model, and opens engines for it; undefined: neither the place that its URI names nor the cache of this machine
   * has it.
   */
  find(earlier: EarlierModel): Promise<{ model: Model; openEngine: Models["openEngine"] } | undefined>;
  /** Keeps a copy of a model file of this machine in the cache, for a later run whose file is another one. */
  keep(model: EarlierModel): Promise<void>;
}

/** Which rows of an earlier run are read. */
export interface StoredRowsRequest {
  readonly files: StoredFiles;
  /** Columns that together name a row. */
  readonly key: readonly TypedColumn[];
  readonly outputs: readonly TypedColumn[];
}

interface StoredPiece {
  readonly rowCount: number;
  readonly keys: readonly Column[];
  readonly predictions: readonly Column[];
  /** What is stored with them, four words each. */
  readonly hashes: Int32Array;
}

/** Reads the rows of an earlier run once. */
export interface StoredRowsReader extends AsyncDisposable {
  readonly rowCount: number;
  /** Yields all rows but those with a NULL. @throws Error when other than `rowCount` rows came */
  all(): AsyncGenerator<StoredPiece>;
}

/** Reads a file of rows with known predictions. */
export interface GoldenReader extends AsyncDisposable {
  readonly decoder: Decoder;
  /** Reads the digest of the model that the file says it was made with. */
  modelSha256(file: ShardFile): Promise<string | undefined>;
}

/** Sessions of the model, and threads of each. */
export interface EngineLayout {
  readonly sessions: number;
  readonly threads: number;
}

/** What an engine is opened for: shards of so many bytes, as the spec says, or a layout to be tried. */
export type EngineNeed =
  | {
      readonly inputBytes: number;
      /** Nothing is scored: only the model's signature is read, for which any provider will do. */
      readonly preview?: true;
    }
  | EngineLayout;

export interface Log {
  info(message: string): void;
  warn(message: string): void;
  debug(message: string): void;
}

export const silentLog: Log = { info() {}, warn() {}, debug() {} };

/** Does `work` for a key of the spec: errors that its author must correct name the place in the spec. */
export async function atKey<T>({ where }: PlacedSpec, path: readonly string[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.exitCode === 64) {
      throw reworded(error, { message: `reading ${where(path)}: ${error.message}` });
    }
    throw error;
  }
}

/** The largest batches that fitted into memory in earlier runs. A lost entry only costs time. */
export interface BatchLimitCache {
  find(of: BatchLimitKey): Promise<number | undefined>;
  keep(of: BatchLimitKey, rows: number): Promise<void>;
}

/** The model, device and row width that a limit holds for. */
export interface BatchLimitKey {
  readonly modelSha256: string;
  /** "cuda:0" */
  readonly device: string;
  /** The size of a row's inputs in bytes. It varies for a model that takes lists of any length. */
  readonly rowBytes: number;
}
