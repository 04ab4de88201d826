import type { RowFault } from "../batch/packer.js";
import type { Decoder } from "../decode/port.js";
import { JobError } from "../errors.js";
import type { Spans } from "../plan/spans.js";
import type { Source } from "../source/port.js";

const hint = "mend the row, or leave it out of the shard; committed spans are kept";

/** BAD_ROW naming shard, row, column and value. The value is read again: packing has lost what it was. */
export async function badRow(spans: Spans, decoder: Decoder, source: Source, fault: RowFault): Promise<JobError> {
  const { shard, row } = spans.locate(fault.row);
  await using opened = await source.open(shard);
  const [value = null] = await decoder.describeRow(opened.path, row, [fault.column]);
  const found =
    value === null
      ? "is NULL"
      : fault.reason === "not_finite"
        ? `is ${value}, which is not finite`
        : `is ${value}, which float32 cannot hold`;
  return new JobError("BAD_ROW", `scoring ${opened.path}: row ${row}, column \`${fault.column}\` ${found}`, { hint });
}

/** BAD_ROW for a prediction that is NaN or infinite. */
export function notFinite(spans: Spans, column: string, runRow: number, value: number): JobError {
  const { shard, row } = spans.locate(runRow);
  return new JobError(
    "BAD_ROW",
    `scoring ${shard.uri}: the model's prediction \`${column}\` for row ${row} is ${value}`,
    { hint },
  );
}
