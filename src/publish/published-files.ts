import type { ColumnType, SpanOutput } from "../columnar/types.js";
import type { PinnedRun } from "../plan/plan.js";
import type { CommittedBy } from "./span-record.js";

/** Parquet files on this machine. */
export interface LocalParts {
  /** Whether they are CSV files whose first lines name the columns. Default: no. */
  readonly isNamed?: boolean;
  /** The folder that they are in. */
  readonly folder: string;
  /** Paths, a group at a time. A group lasts until the next one is requested. */
  readonly groups: AsyncIterable<readonly string[]>;
}

/** The rows of a run that are Parquet files. */
export interface StoredSpans extends LocalParts {
  /** Yields each committed span, in order. Its file lasts until the next one is requested. */
  spans(): AsyncIterable<SpanFile>;
}

/** A committed span as a Parquet file on this machine, with the other facts that are stored of it. */
export interface SpanFile extends Pick<SpanOutput, "rejects" | "filtered" | "erased" | "profile"> {
  readonly span: number;
  readonly path: string;
  readonly maker: CommittedBy;
}

/** Files of rows on this machine. */
export interface StoredFiles extends LocalParts {
  /** csv: texts as Postgres writes them, in the order of the columns that were asked for, without a header. */
  readonly format: "parquet" | "csv";
  readonly rows: number;
}

/** Rows of a table as files on this machine. */
export interface StoredTable extends StoredFiles {
  readonly columns: readonly StoredColumn[];
}

export interface StoredColumn {
  readonly name: string;
  readonly type: ColumnType;
  /** Whether it has numbers, which are texts in the files so that none is rounded. Default: it has what its type says. */
  readonly hasNumbers?: boolean;
}

/** Which rows of a published run are read. */
export interface PublishedRowsRequest {
  readonly run: PinnedRun;
  readonly columns: readonly { readonly name: string; readonly type: ColumnType }[];
}
