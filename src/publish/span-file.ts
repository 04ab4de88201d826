import type { SpanOutput } from "../columnar/types.js";
import type { CommittedBy } from "./span-record.js";

/** A committed span as a Parquet file on this machine, with the other facts that are stored of it. */
export interface SpanFile extends Pick<SpanOutput, "rejects" | "filtered" | "erased" | "profile"> {
  readonly span: number;
  readonly path: string;
  readonly maker: CommittedBy;
}
