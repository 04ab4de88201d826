import { z } from "../../util/zod.js";
import type { NamedColumn } from "../../columnar/types.js";
import { sqlTypeOf } from "../../duckdb/sql.js";
import { parseJson } from "../../plan/parse-plan.js";
import type { Span } from "../../plan/plan.js";
import type { CommittedBy, SpanRecord } from "../../publish/span-record.js";

/** The label of a part, in Parquet's key-value metadata. */
export interface PartLabel {
  readonly runId: string;
  readonly planId: string;
  readonly span: number;
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Rows of the span that are not in the part but in its file under `_rejects/`. */
  readonly rejected: number;
  /** Hex sha256 of that file's text, by which the file is found; null without rejects. */
  readonly rejectsSha256: string | null;
  /** Rows of the span that `input.where` left out. */
  readonly filtered: number;
  /** Rows of the span, predicted or rejected, that `erase` has removed; absent: none. */
  readonly erased?: number | undefined;
  readonly maker: CommittedBy;
}

export interface PartFacts {
  readonly path: string;
  /** undefined: the file has no label of a part. */
  readonly label: PartLabel | undefined;
  readonly rows: number;
  /** `name TYPE, …` */
  readonly schema: string;
}

/** The schema of a part, as `describeParts` reads it back. */
export function partSchema(columns: readonly Pick<NamedColumn, "name" | "type">[]): string {
  return columns.map(({ name, type }) => `${name} ${sqlTypeOf(type)}`).join(", ");
}

/** A maker as labels and manifests hold it. */
export const committedBySchema = z.object({
  writer: z.string(),
  worker: z.int(),
  workers: z.int(),
  program: z.string(),
  provider: z.string(),
  batchSize: z.int(),
  onBadRow: z.enum(["fail", "reject"]),
}) satisfies z.ZodType<CommittedBy>;

const labelSchema = z.object({
  runId: z.string(),
  planId: z.string(),
  span: z.int(),
  rowStart: z.int(),
  rowEnd: z.int(),
  rejected: z.int().min(0),
  rejectsSha256: z.string().nullable(),
  filtered: z.int().min(0),
  erased: z.int().min(1).optional(),
  maker: committedBySchema,
}) satisfies z.ZodType<PartLabel>;

export function parseLabel(text: string): PartLabel | undefined {
  return labelSchema.safeParse(parseJson(text)).data;
}

/** What is kept of a part's label. */
export type CommittedPart = SpanRecord & Pick<PartLabel, "rejectsSha256" | "erased">;

/** Leaves out the other fields: of large runs, many labels are in memory. */
export function keptOf({ rows, rejected, rejectsSha256, filtered, erased, maker }: CommittedPart): CommittedPart {
  return { rows, rejected, rejectsSha256, filtered, erased, maker };
}

/** Whether all rows of a span are accounted for. */
export function isWholeSpan(
  { rowStart, rowEnd }: Pick<Span, "rowStart" | "rowEnd">,
  { rows, rejected, filtered, erased = 0 }: Omit<CommittedPart, "maker" | "rejectsSha256">,
): boolean {
  return rows + rejected + filtered + erased === rowEnd - rowStart;
}
