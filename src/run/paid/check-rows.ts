import type { Engine } from "../../engine/port.js";
import { spansOf } from "../../plan/spans.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";
import { blankOutputs, type BulkRows } from "./ask-in-bulk.js";

/**
 * Reads the pending rows of a share before the first one is asked. Rows that cannot be asked (a column of the prompt is
 * NULL, an expression fails, the prompt is too long) end the run before anything is paid for, if the spec says so. Does
 * nothing where rows take predictions of an earlier run.
 * @throws JobError BAD_ROW, TOO_MANY_REJECTS
 */
export async function checkRows(
  given: JobContext,
  { stored: { plan }, run, engine, decoder, source, share }: BulkRows,
): Promise<void> {
  const { paid } = engine;
  if (paid === undefined || (plan.reuseFrom ?? null) !== null) {
    return;
  }
  const checking: Engine = {
    ...engine,
    paid: undefined, // no row of a batch is spared
    ...(paid.unaskable === undefined ? { mostRows: undefined } : {}), // rows need not be checked one by one
    run({ inputs, outputs }) {
      const fault = paid.unaskable?.(inputs);
      const rows = inputs[0]?.dims[0] ?? 1;
      return Promise.resolve(
        fault === undefined
          ? { kind: "done", outputs: blankOutputs(engine, outputs, rows), ms: 0, inputs }
          : { kind: "failed", ...fault, inputs },
      );
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const ranges = pendingRanges(spansOf(plan), run.committed, share);
  const rows = { ranges, rejectedRows: run.rejectedRows };
  await scoreWithoutPublishing({ ...given, source }, { plan, engine: checking, decoder, ...rows }, () => undefined);
}
