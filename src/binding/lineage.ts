import type { BytesColumn, ColumnType, FixedColumn, OutputRows } from "../columnar/types.js";

/** What `output.lineage: true` adds to each row, after all other columns. */
export const lineageColumns = [
  { name: "run_id", type: "utf8" },
  { name: "model_sha256", type: "utf8" },
  { name: "scored_at", type: "timestamp[us, UTC]" },
] as const satisfies readonly { name: string; type: ColumnType }[];

/** What is added to the rows of a run that is compared with another one: the number of the row in the run. */
export const rowNumberColumn = { name: "_row", type: "int64" } as const satisfies { name: string; type: ColumnType };

export function withRowNumbers(rows: OutputRows, numbers: () => BigInt64Array<ArrayBuffer>): OutputRows {
  const column: FixedColumn = { kind: "fixed", elementsPerValue: 1, data: numbers(), valid: undefined };
  return { ...rows, columns: [...rows.columns, { ...rowNumberColumn, column }] };
}

export interface Lineage {
  readonly runId: string;
  readonly modelSha256: string;
  /** Milliseconds from 1970. */
  readonly scoredAtMs: number;
}

export function withLineage(rows: OutputRows, { runId, modelSha256, scoredAtMs }: Lineage): OutputRows {
  const { rowCount } = rows;
  const scoredAt = BigInt(Math.round(scoredAtMs * 1000));
  const values = [
    sameText(runId, rowCount),
    sameText(modelSha256, rowCount),
    {
      kind: "fixed",
      elementsPerValue: 1,
      data: new BigInt64Array(rowCount).fill(scoredAt),
      valid: undefined,
    } satisfies FixedColumn,
  ] as const;
  const added = lineageColumns.map(({ name, type }, index) => ({ name, type, column: values[index] ?? values[0] }));
  return { ...rows, columns: [...rows.columns, ...added] };
}

function sameText(text: string, rowCount: number): BytesColumn {
  const encoded = new TextEncoder().encode(text);
  const bytes = new Uint8Array(encoded.length * rowCount);
  const offsets = new Uint32Array(rowCount + 1);
  for (let row = 0; row < rowCount; row += 1) {
    bytes.set(encoded, row * encoded.length);
    offsets[row + 1] = (row + 1) * encoded.length;
  }
  return { kind: "bytes", offsets, bytes, valid: undefined };
}
