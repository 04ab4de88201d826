import type { Contract, Projection } from "../../binding/contract.js";
import { type MissedReason, missedReasons } from "../../checks/agreement/span-agreement.js";
import type { Tensor } from "../../columnar/tensor.js";
import type { OutputRows, RecordBatch } from "../../columnar/types.js";
import type { RowFault, RowRange } from "../../packing/input-target.js";
import type { FeatureBatch } from "../../packing/packer.js";
import { createSpanRows } from "../span-rows.js";
import type { PieceRows } from "./port.js";

/** The challenger's predictions of a piece of a span, and the rows that it could not score. */
export interface ChallengedRows {
  readonly bytes: number;
  /** Whether all rows that came were scored, or missed for a reason of their own. */
  readonly isWhole: boolean;
  /** Takes note of rows that come, and of those for which an expression of the challenger failed. */
  take(batch: RecordBatch, range: RowRange, projection: Projection): void;
  predict(outputs: ReadonlyMap<string, Tensor>, batch: Omit<FeatureBatch, "inputs">): void;
  /** The challenger has no prediction for a row. */
  miss(row: number, reason: RowFault["reason"]): void;
  /** The model fails on a row. */
  refuse(row: number, message: string): void;
  /** Predictions of the piece will not come. */
  abandon(): void;
  waitFor(prediction: Promise<void>): void;
  /** Waits for the predictions. */
  ended(): Promise<void>;
  /** Whether all rows have predictions. */
  readonly isComplete: boolean;
  /** Why a row has no prediction; undefined: it has one. */
  missed(row: number): MissedReason | undefined;
  /** Leaves a row out of `finish`. */
  leaveOut(row: number): void;
  /** The predictions of the rows that were not left out. `rowCount`: the rows that came. */
  finish(rowCount: number): OutputRows;
}

const reasonOf: Readonly<Record<RowFault["reason"], MissedReason>> = {
  expression: "expression_failed",
  missing: "missing",
  not_finite: "not_finite",
  too_long: "too_long",
  prediction: "prediction_not_finite",
  model: "model_failed",
  target: "model_failed",
  prompt_too_long: "model_failed",
  answer_refused: "model_failed",
  answer_cut_off: "model_failed",
  answer_invalid: "model_failed",
};

/** Which rows have no prediction. Rows are numbered as the champion's are (`SpanRows`). */
interface Misses extends Pick<ChallengedRows, "isComplete"> {
  miss(this: void, row: number, reason: RowFault["reason"]): void;
  missed(this: void, row: number): MissedReason | undefined;
}

function createMisses({ rowStart, rowEnd }: PieceRows): Misses {
  /** For each row the index of its reason, plus one; 0: the row has a prediction. */
  const codes = new Uint8Array(rowEnd - rowStart);
  let isComplete = true;
  return {
    get isComplete() {
      return isComplete;
    },
    miss(row, reason) {
      isComplete = false;
      codes[row - rowStart] ||= missedReasons.indexOf(reasonOf[reason]) + 1;
    },
    missed: (row) => missedReasons[(codes[row - rowStart] ?? 0) - 1],
  };
}

/** Rows are numbered as the champion's are (`SpanRows`). */
export function createChallengedRows(contract: Contract, piece: PieceRows): ChallengedRows {
  const misses = createMisses(piece);
  const { miss, missed } = misses;
  const predictions: Promise<void>[] = [];
  let isWhole = true;
  const rows = createSpanRows({ contract, span: piece, onFault: ({ row, reason }) => miss(row, reason) });
  const own = new Set(contract.expressions?.list.map(({ name }) => name));
  return {
    get bytes() {
      return rows.bytes;
    },
    get isWhole() {
      return isWhole;
    },
    get isComplete() {
      return misses.isComplete;
    },
    take(batch, range, { expressions }) {
      rows.carry(batch, range);
      for (const { row, expression } of batch.selection?.failed ?? []) {
        const isOwn = own.has(expressions?.list[expression]?.name ?? "");
        if (isOwn && row >= range.from && row < range.to) {
          miss(range.row + (row - range.from), "expression");
        }
      }
    },
    predict(outputs, { rowStart, rowCount, packedRows }) {
      rows.predict(outputs, { rowStart, rowCount, packedRows });
    },
    miss,
    refuse(row, message) {
      rows.refuse(row, message);
    },
    abandon() {
      isWhole = false;
    },
    waitFor(prediction) {
      predictions.push(prediction);
    },
    async ended() {
      await Promise.all(predictions);
    },
    missed,
    leaveOut(row) {
      rows.reject(row);
    },
    finish: (rowCount) => rows.finish(rowCount),
  };
}
