import type { ColumnType, SpanOutput, TypedColumn } from "../../columns/types.js";
import type { PinnedRun } from "../plan/plan.js";

/** Facts about an attempt that are recorded with each span it commits. They inform people, and are never compared. */
export interface AttemptFacts {
  /** Index of this worker among `workers`, from 0. */
  readonly worker: number;
  readonly workers: number;
  readonly program: string;
  readonly provider: string;
  readonly onBadRow: "fail" | "reject";
}

export interface CommittedBy extends AttemptFacts {
  readonly batchSize: number;
  /** Names the attempt: host, process id and a random number. */
  readonly writer: string;
}

/** What is stored of a committed span. Its rows are in the output, rejected, left out by `input.where`, or erased. */
export interface SpanRecord {
  readonly rows: number;
  readonly rejected: number;
  readonly filtered: number;
  readonly maker: CommittedBy;
}

/** What became of the rows of a run that are committed. Those that were erased are none of these. */
export interface RowsOfRun {
  readonly output: number;
  readonly rejected: number;
  /** Rows that `input.where` left out. */
  readonly filtered: number;
}

export function countSpans(spans: ReadonlyMap<number, Omit<SpanRecord, "maker">>): RowsOfRun {
  const sum = { output: 0, rejected: 0, filtered: 0 };
  for (const { rows, rejected, filtered } of spans.values()) {
    sum.output += rows;
    sum.rejected += rejected;
    sum.filtered += filtered;
  }
  return sum;
}

/** Parquet files on this machine. */
export interface LocalParts {
  /** Whether they are CSV files whose first lines name the columns. Default: no. */
  readonly isNamed?: boolean;
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

/** The rows of a whole run. */
export interface RunRows {
  readonly files: StoredTable | LocalParts | StoredSpans;
  /** Rejected rows by their numbers in the run. */
  readonly rejected: AsyncIterable<{ readonly row: number; readonly reason: string }>;
  readonly rowCount: number;
  readonly commitRows: number;
}

/** Which rows of a published run are read. */
export interface PublishedRowsRequest {
  readonly run: PinnedRun;
  readonly columns: readonly TypedColumn[];
}
