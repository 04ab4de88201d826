import { createColumnBuilder } from "../columns/columns.js";
import type { Column, OutputRows, Piece } from "../columns/types.js";
import type { Deadline } from "./deadline.js";
import { RequestError } from "./request-error.js";
import type { RowScorer, ScoredRows } from "./scorer.js";
import { columnsOfRows, type JsonRow } from "./served-columns.js";

/** Predictions for the rows of a request, of which all could be scored. */
export interface BatchedRows {
  readonly output: OutputRows;
  /** Where each row of the request is in the output. */
  readonly at: Int32Array;
}

/** Scores the rows of requests, several requests at once. Disposing closes the scorer, once nothing is being scored. */
export interface Batcher extends AsyncDisposable {
  readonly waitingRows: number;
  /** @throws RequestError 400, 422: not scorable, 503: too many wait, 504: deadline */
  score(rows: RequestRows, deadline: Deadline): Promise<BatchedRows>;
}

interface RequestRows {
  /** Objects of JSON, which become columns with those of other requests; or columns. */
  readonly values: readonly JsonRow[] | ReadonlyMap<string, Column>;
  /** The number of each row in the request. */
  readonly numbers: readonly number[];
}

interface BatcherOptions {
  readonly scorer: RowScorer;
  readonly batch: { readonly rows: number; readonly wait: number };
  readonly queue: number;
  readonly nowMs: () => number;
}

interface Waiting extends RequestRows {
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
      next !== undefined && (rows === 0 || rows + next.numbers.length <= batch.rows);
      next = waiting[0]
    ) {
      waiting.shift();
      taken.push(next);
      rows += next.numbers.length;
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
    async score(rows, deadline) {
      const { length } = rows.numbers;
      if (waitingRows > 0 && waitingRows + length > queue) {
        throw new RequestError(503, `${waitingRows} rows wait for the model`);
      }
      let entry: Waiting | undefined;
      const scored = new Promise<BatchedRows>((resolve, reject) => {
        entry = { ...rows, sinceMs: nowMs(), resolve, reject };
        waiting.push(entry);
        waitingRows += length;
        setImmediate(begin); // requests of one turn of the event loop are scored together
      });
      return await deadline.wait(scored, () => {
        const index = waiting.indexOf(entry as Waiting);
        if (index !== -1) {
          waiting.splice(index, 1);
          waitingRows -= length;
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
    const output = await scorer.score(pieceOf(scorer, requests));
    let from = 0;
    for (const { numbers, resolve, reject } of requests) {
      try {
        resolve(rowsOf(output, from, numbers));
      } catch (error) {
        reject(error);
      }
      from += numbers.length;
    }
  } catch (error) {
    const sound = error instanceof RequestError ? soundOf(scorer, requests) : [];
    if (sound.length > 0 && sound.length < requests.length) {
      await scoreTogether(scorer, sound);
      return;
    }
    for (const { reject } of requests) {
      reject(error);
    }
  }
}

/** Rejects requests with a row that has not what it must have, and returns the others. */
function soundOf(scorer: RowScorer, requests: readonly Waiting[]): Waiting[] {
  return requests.filter((request) => {
    try {
      pieceOf(scorer, [request]);
      return true;
    } catch (error) {
      request.reject(error);
      return false;
    }
  });
}

/** @throws RequestError 400 */
function pieceOf({ columns }: RowScorer, requests: readonly Waiting[]): Piece {
  const numbers = requests.flatMap((request) => request.numbers);
  const objects = requests.flatMap(({ values }) => (isColumns(values) ? [] : values));
  const rowEnd = numbers.length;
  if (objects.length === rowEnd) {
    return { rowStart: 0, rowEnd, columns: columnsOfRows(columns, objects, numbers) };
  }
  const parts = requests.map(({ values, numbers: own }) =>
    isColumns(values) ? values : columnsOfRows(columns, values, own),
  );
  const [only] = parts;
  if (only !== undefined && parts.length === 1) {
    return { rowStart: 0, rowEnd, columns: only };
  }
  const joined = columns.map(({ name, type }): [string, Column] => {
    const builder = createColumnBuilder(type, rowEnd);
    for (const [index, part] of parts.entries()) {
      builder.append(part.get(name) as Column, 0, requests[index]?.numbers.length ?? 0);
    }
    return [name, builder.finish()];
  });
  return { rowStart: 0, rowEnd, columns: new Map(joined) };
}

function isColumns(values: RequestRows["values"]): values is ReadonlyMap<string, Column> {
  return values instanceof Map;
}

/** The rows of a batch that are those of a request, from a row on. @throws RequestError 422 if some of them have no prediction */
function rowsOf({ rows: output, rejects, ...scored }: ScoredRows, from: number, rows: readonly number[]): BatchedRows {
  const at = scored.at.subarray(from, from + rows.length);
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
