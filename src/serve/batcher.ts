import { createColumnBuilder } from "../columns/columns.js";
import { asFixed } from "../columns/value-text.js";
import { rowNumberColumn } from "../models/binding/contract.js";
import type { Column, OutputRows, Piece, SpanOutput } from "../columns/types.js";
import type { Deadline } from "./deadline.js";
import { RequestError } from "./request-error.js";
import type { RowScorer } from "./scorer.js";

/** Predictions for the rows of a request, of which all could be scored. */
export interface BatchedRows {
  readonly output: OutputRows;
  /** Where each row of the request is in the output. */
  readonly at: Int32Array;
}

/** Scores the rows of requests, several requests at once. Disposing closes the scorer, once nothing is being scored. */
export interface Batcher extends AsyncDisposable {
  readonly waitingRows: number;
  /**
   * @param rows their numbers in the request @throws RequestError 503: too many wait, 504: deadline, 422: not scorable
   */
  score(columns: ReadonlyMap<string, Column>, rows: readonly number[], deadline: Deadline): Promise<BatchedRows>;
}

interface BatcherOptions {
  readonly scorer: RowScorer;
  readonly batch: { readonly rows: number; readonly wait: number };
  readonly queue: number;
  readonly nowMs: () => number;
}

interface Waiting {
  readonly columns: ReadonlyMap<string, Column>;
  readonly rows: readonly number[];
  readonly sinceMs: number;
  readonly resolve: (scored: BatchedRows) => void;
  readonly reject: (error: unknown) => void;
}

export function createBatcher({ scorer, batch, queue, nowMs }: BatcherOptions): Batcher {
  const waiting: Waiting[] = [];
  let waitingRows = 0;
  const running = new Set<Promise<void>>(); // also for requests whose deadlines have passed
  let timer: NodeJS.Timeout | undefined;

  /** Takes as many whole requests as fit; one that is larger is scored alone. */
  const take = (): Waiting[] => {
    const taken: Waiting[] = [];
    let rows = 0;
    for (
      let next = waiting[0];
      next !== undefined && (rows === 0 || rows + next.rows.length <= batch.rows);
      next = waiting[0]
    ) {
      waiting.shift();
      taken.push(next);
      rows += next.rows.length;
    }
    waitingRows -= rows;
    return taken;
  };
  const begin = (): void => {
    clearTimeout(timer);
    timer = undefined;
    while (running.size < scorer.concurrency && waiting.length > 0) {
      const restMs = batch.wait - (nowMs() - (waiting[0]?.sinceMs ?? 0));
      if (waitingRows < batch.rows && restMs > 0) {
        timer = setTimeout(begin, restMs);
        return;
      }
      const scoring = scoreTogether(scorer, take()).finally(() => {
        running.delete(scoring);
        begin();
      });
      running.add(scoring);
    }
  };
  return {
    get waitingRows() {
      return waitingRows;
    },
    async score(columns, rows, deadline) {
      if (waitingRows > 0 && waitingRows + rows.length > queue) {
        throw new RequestError(503, `${waitingRows} rows wait for the model`);
      }
      let entry: Waiting | undefined;
      const scored = new Promise<BatchedRows>((resolve, reject) => {
        entry = { columns, rows, sinceMs: nowMs(), resolve, reject };
        waiting.push(entry);
        waitingRows += rows.length;
        setImmediate(begin); // requests of one turn of the event loop are scored together
      });
      return await deadline.wait(scored, () => {
        const index = waiting.indexOf(entry as Waiting);
        if (index !== -1) {
          waiting.splice(index, 1);
          waitingRows -= rows.length;
        }
      });
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(running);
      await scorer[Symbol.asyncDispose]();
    },
  };
}

async function scoreTogether(scorer: RowScorer, requests: readonly Waiting[]): Promise<void> {
  try {
    const piece = pieceOf(scorer, requests);
    const output = await scorer.score(piece);
    let from = 0;
    for (const { rows, resolve, reject } of requests) {
      try {
        resolve(rowsOf(output, from, rows));
      } catch (error) {
        reject(error);
      }
      from += rows.length;
    }
  } catch (error) {
    for (const { reject } of requests) {
      reject(error);
    }
  }
}

function pieceOf({ columns }: RowScorer, requests: readonly Waiting[]): Piece {
  const rowEnd = requests.reduce((sum, { rows }) => sum + rows.length, 0);
  const [only] = requests;
  if (requests.length === 1 && only !== undefined) {
    return { rowStart: 0, rowEnd, columns: only.columns };
  }
  const joined = columns.map(({ name, type }): [string, Column] => {
    const builder = createColumnBuilder(type, rowEnd);
    for (const { columns: own, rows } of requests) {
      builder.append(own.get(name) as Column, 0, rows.length);
    }
    return [name, builder.finish()];
  });
  return { rowStart: 0, rowEnd, columns: new Map(joined) };
}

/** The rows of a batch that are those of a request, from a row on. @throws RequestError 422 if some of them have no prediction */
function rowsOf({ rows: output, rejects }: SpanOutput, from: number, rows: readonly number[]): BatchedRows {
  const numbers = asFixed(output.columns.find(({ name }) => name === rowNumberColumn.name)?.column as Column).data;
  const to = from + rows.length;
  const at = new Int32Array(rows.length).fill(-1);
  for (let index = 0; index < output.rowCount; index += 1) {
    const row = Number(numbers[index]);
    if (row >= from && row < to) {
      at[row - from] = index;
    }
  }
  if (at.includes(-1)) {
    const byRow = new Map(rejects.map((reject) => [reject.row, reject]));
    const refused = Array.from(at.keys()).filter((row) => at[row] === -1);
    throw new RequestError(422, `${refused.length} of ${at.length} rows cannot be scored`, {
      // A row that is none of the output and no reject was left out by input.where.
      rows: refused.map((row) => {
        const { column = null, reason = "filtered", value = null } = byRow.get(from + row) ?? {};
        return { row: rows[row], column, reason, value };
      }),
    });
  }
  return { output, at };
}
