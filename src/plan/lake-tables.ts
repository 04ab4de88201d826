import { JobError } from "../util/errors.js";

/**
 * A table format that keeps files of removed and rewritten rows beside those that count: only its log tells them apart.
 */
export interface LakeTable {
  readonly format: string;
  /** The folder of its log, in the table's own folder. */
  readonly log: string;
  /** Whether a file there is one that such a log has. */
  readonly isLogFile: (name: string) => boolean;
  /** How to get at the rows that count. */
  readonly exportBy: (table: string) => string;
}

export const lakeTables: readonly LakeTable[] = [
  {
    format: "Delta Lake",
    log: "_delta_log",
    isLogFile: (name) => /\.json$|\.parquet$|^_last_checkpoint$/.test(name),
    exportBy: (table) => `COPY (FROM delta_scan('${table}')) TO 'snapshot.parquet' in DuckDB`,
  },
  {
    format: "Iceberg",
    log: "metadata",
    isLogFile: (name) => /^(v\d+|\d{5,}-.*)(\.gz)?\.metadata\.json(\.gz)?$|^snap-.*\.avro$|-m\d+\.avro$/.test(name),
    exportBy: (table) => `COPY (FROM iceberg_scan('${table}')) TO 'snapshot.parquet' in DuckDB`,
  },
  {
    format: "Hudi",
    log: ".hoodie",
    isLogFile: () => true,
    exportBy: (table) => `spark.read.format("hudi").load("${table}").write.parquet("snapshot") in Spark`,
  },
];

/** SPEC_INVALID, where a pattern matches data files of a table. */
export function lakeTableError(pattern: string, table: string, { format, exportBy }: LakeTable): JobError {
  return new JobError(
    "SPEC_INVALID",
    `${pattern} matches data files of the ${format} table ${table}, those of deleted and rewritten rows among them`,
    {
      hint: `export the table's current rows and read those (${exportBy(table)}), or list the current files by their full paths, without wildcards`,
    },
  );
}
