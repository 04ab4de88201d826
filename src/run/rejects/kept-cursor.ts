import type { Contract } from "../../binding/contract.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";
import type { OutputRows } from "../../columnar/types.js";
import type { StoredRows } from "../../packing/row-reuse.js";
import { spanAt } from "../../plan/spans.js";
import type { Plan } from "../../plan/plan.js";
import type { PartReader } from "../../scoring/context.js";
import type { Reuse } from "../../scoring/reuse.js";
import type { RunSink } from "../../sink/port.js";
import type { SpanFile } from "../../publish/span-file.js";
import { JobError, messageOf } from "../../util/errors.js";
import type { RejectedRows } from "./rejected-rows.js";

export interface KeptRun {
  readonly plan: Plan;
  readonly run: RunSink;
  readonly reader: PartReader;
  readonly rejected: RejectedRows;
  /** The error code where a file of the run cannot be read. */
  readonly away: "DISK" | "OBJECT_STORE";
}

/** Reads the predictions of the rows that a run did not reject, span by span, in the order of its rows. */
export interface KeptCursor extends AsyncDisposable {
  readonly find: NonNullable<Reuse["find"]>;
}

export function openKeptCursor(outputs: Contract["outputs"], kept: KeptRun): KeptCursor {
  const { plan, rejected } = kept;
  const files = openSpanFiles(kept, outputs);
  return {
    async find({ rowStart, rowEnd, present }) {
      const rows = present().filter((row) => !rejected.has(row));
      const span = Math.floor(rowStart / plan.commitRows);
      const part = await files.of(span);
      const taken = await part.take(rows.length);
      const isEnd = rowEnd === spanAt(plan, span).rowEnd;
      if (taken === undefined || (isEnd && !(await part.isThrough()))) {
        throw new JobError(
          "OUTPUT_DAMAGED",
          `keeping the predictions of run ${plan.runId}: its span ${span} does not have the rows that it has not rejected`,
          { hint: "score all rows with --new-run" },
        );
      }
      return { rows, hashes: undefined, predictions: taken };
    },
    [Symbol.asyncDispose]: () => files.close(),
  };
}

interface PartRows {
  /** The next rows, a column for each output; undefined: there are fewer. */
  take(count: number): Promise<StoredRows["predictions"] | undefined>;
  isThrough(): Promise<boolean>;
  close(): Promise<void>;
}

interface SpanParts {
  of(span: number): Promise<PartRows>;
  close(): Promise<void>;
}

/** Spans may be asked for in any order; each is asked for until all of its rows were read. */
function openSpanFiles({ plan, run, reader, away }: KeptRun, outputs: Contract["outputs"]): SpanParts {
  const columns = outputs.map(({ column: name, type }) => ({ name, type }));
  let wanted = -1;
  let current: { readonly span: number; readonly rows: PartRows } | undefined;
  let files: AsyncIterator<SpanFile> | undefined;
  const close = async (): Promise<void> => {
    await current?.rows.close();
    await files?.return?.();
    [current, files] = [undefined, undefined];
  };
  return {
    async of(span) {
      if (current?.span === span) {
        return current.rows;
      }
      if (current !== undefined && span < current.span) {
        await close();
      }
      await current?.rows.close();
      wanted = span;
      files ??= run.spanFiles?.((one) => one === wanted)[Symbol.asyncIterator]();
      const next = await files?.next().catch((error: unknown) => {
        throw error instanceof JobError ? error : goneError({ plan, away }, span, error);
      });
      if (next === undefined || next.done === true) {
        throw goneError({ plan, away }, span, undefined);
      }
      const { path } = next.value;
      current = { span, rows: openPart(reader.rows(path, columns), outputs) };
      return current.rows;
    },
    close,
  };
}

/** Another attempt may have finished the run, and removed the one before it. */
function goneError({ plan: { runId }, away }: Pick<KeptRun, "plan" | "away">, span: number, cause: unknown): JobError {
  const found = cause === undefined ? "it is not there" : messageOf(cause);
  return new JobError(away, `keeping the predictions of run ${runId}: reading its span ${span}: ${found}`, {
    hint: "run the same command again; if its files are gone, restore them or score all rows with --new-run",
    cause,
  });
}

function openPart(pieces: AsyncGenerator<OutputRows>, outputs: Contract["outputs"]): PartRows {
  let piece: OutputRows | undefined;
  let from = 0;
  /** Whether rows are left. */
  const fill = async (): Promise<boolean> => {
    while (piece === undefined || from === piece.rowCount) {
      const next = await pieces.next();
      if (next.done === true) {
        return false;
      }
      [piece, from] = [next.value, 0];
    }
    return true;
  };
  return {
    async take(count) {
      const builders = outputs.map(({ type }) => createColumnBuilder(type, count));
      for (let left = count; left > 0; ) {
        if (!(await fill()) || piece === undefined) {
          return undefined;
        }
        const to = Math.min(piece.rowCount, from + left);
        for (const [index, builder] of builders.entries()) {
          const column = piece.columns[index]?.column;
          if (column !== undefined) {
            builder.append(column, from, to);
          }
        }
        left -= to - from;
        from = to;
      }
      return builders.map((builder) => builder.finish());
    },
    isThrough: async () => !(await fill()),
    async close() {
      await pieces.return(undefined);
    },
  };
}
