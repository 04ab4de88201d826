import type { Contract } from "../../binding/contract.js";
import type { SharedProjection } from "../../binding/shared-projection.js";
import type { SpanAgreement } from "../../checks/agreement/span-agreement.js";
import type { OutputRows } from "../../columnar/types.js";
import type { RowRange } from "../../packing/input-target.js";
import type { ScoredBatch } from "../../packing/scored-batch.js";
import type { Span } from "../../plan/plan.js";

/** The rows of a piece of a span, by the run's numbers. */
export type PieceRows = Pick<Span, "rowStart" | "rowEnd">;

/** A model that scores the rows of a run, next to the one whose predictions are published. */
export interface Challenger {
  /** What is read for both models. */
  readonly shared: SharedProjection;
  /**
   * How workers that have its sessions score rows; it may change, and is undefined once the challenger has stopped.
   * undefined: they have none.
   */
  readonly inWorkers?: (() => WorkerScoring | undefined) | undefined;
  /** Begins a piece of a span. Pieces are filled one after the other. */
  openPiece(piece: PieceRows): ChallengerPiece;
  /** Waits for all batches. Throws nothing. */
  settled(): Promise<void>;
}

export interface WorkerScoring {
  readonly contract: Contract;
  /** The tensors that the contract's outputs come from. */
  readonly tensors: readonly string[];
  /** Rows of a batch. */
  readonly batchRows: number;
}

/** The challenger's predictions of a piece of a span. Each failure is counted, and none is thrown. */
export interface ChallengerPiece {
  /** The size of the predictions so far, in bytes. */
  readonly bytes: number;
  /** Scores rows of a batch; `row` is numbered as the champion's rows are. Waits while many batches are under way. */
  take(batch: ScoredBatch, range: RowRange): Promise<void>;
  /** Scores the rows that are left. No more rows come. */
  end(): Promise<void>;
  /** Compares the predictions of both models, once the challenger's are there. `output`: the champion's rows. */
  compare(champion: ChampionRows, output: OutputRows): Promise<SpanAgreement>;
}

/** Keeps the challenger's predictions. Failures are logged, never thrown. */
export interface PredictionKeeper {
  /** Keeps a piece of a span, before the champion's rows of the span are committed. undefined: it has no predictions. */
  keep(span: Span, piece: KeptPiece | undefined): Promise<void>;
}

/** The challenger's predictions of a piece of a span. The pieces of a span come in order. */
export interface KeptPiece {
  /** Whether no more rows of the span come: they may end before the last row that the piece could have had. */
  readonly isLast: boolean;
  /** The rows that both models scored, with the copied columns. */
  readonly rows: OutputRows;
  /** Rows that came and are not kept: filtered out, rejected, or without a prediction of the challenger. */
  readonly leftOut: number;
}

/** The champion's rows of a piece of a span. */
export interface ChampionRows {
  readonly span: Span;
  /** The output columns that the champion predicts; the others are copied. */
  readonly predicted: ReadonlySet<string>;
  readonly piece: PieceRows;
  /** Whether no more rows of the span come. */
  readonly isLast: boolean;
  /** Rows of the piece that came, also those that were filtered out. */
  readonly readRows: number;
  /** Rows of the piece that came and were not filtered out. */
  readonly keptRows: number;
  /** Whether the output has a row: it was not rejected. */
  readonly isInOutput: (row: number) => boolean;
  /** The run's number of a row. */
  readonly rowInRun: (row: number) => number;
}
