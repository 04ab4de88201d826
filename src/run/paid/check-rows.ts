import type { Engine } from "../../engine/port.js";
import { spansOf } from "../../plan/spans.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";
import { blankRows } from "../../columnar/blank-rows.js";
import type { Tensor } from "../../columnar/tensor.js";
import type { Decoder } from "../../formats/port.js";
import type { SpanRange } from "../../plan/worker-shares.js";
import type { RunSink, StoredPlan } from "../../sink/port.js";
import type { Source } from "../../storage/port.js";
import { rowsOf } from "../../publish/span-record.js";

interface PendingRows {
  readonly stored: StoredPlan;
  readonly run: Pick<RunSink, "spans">;
  readonly engine: Engine;
  readonly decoder: Decoder;
  readonly source: Source;
  /** The spans whose rows need answers. */
  readonly share: SpanRange;
}

/**
 * Reads the pending rows of a share before the first one is asked. Rows that cannot be asked (a column of the prompt is
 * NULL, an expression fails, the prompt is too long) end the run before anything is paid for, if the spec says so. Does
 * nothing where rows take predictions of an earlier run.
 * @throws JobError BAD_ROW, TOO_MANY_REJECTS
 */
export async function checkRows(
  given: JobContext,
  { stored: { plan }, run, engine, decoder, source, share }: PendingRows,
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
  const ranges = pendingRanges(spansOf(plan), run.spans, share);
  const rows = { ranges, rejectedRows: rowsOf(run.spans).rejected };
  await scoreWithoutPublishing({ ...given, source }, { plan, engine: checking, decoder, ...rows }, () => undefined);
}

/** Returns placeholder values in place of an answer. */
function blankOutputs({ signature }: Engine, names: readonly string[], rows: number): readonly Tensor[] {
  const blank = blankRows(signature.outputs, rows) ?? [];
  return names.flatMap((name) => blank.find((output) => output.name === name) ?? []);
}
