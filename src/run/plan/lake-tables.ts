import { JobError } from "../../base/errors.js";

/**
 * A table format whose folders hold data files of removed and rewritten rows as well as current ones. Only its log tells
 * them apart.
 */
export interface LakeTable {
  readonly format: string;
  /** The name of the log's folder, inside the table's folder. */
  readonly log: string;
  /** Whether a file in that folder belongs to such a log, by its name. */
  readonly isLogFile: (name: string) => boolean;
  /** A command that exports the current rows of a table. */
  readonly exportBy: (table: string) => string;
}

/** The table formats that are recognized. */
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

/** The SPEC_INVALID error for a pattern that matches a table's data files. */
export function lakeTableError(pattern: string, table: string, { format, exportBy }: LakeTable): JobError {
  return new JobError(
    "SPEC_INVALID",
    `${pattern} matches data files of the ${format} table ${table}, those of deleted and rewritten rows among them`,
    {
      hint: `export the table's current rows and read those (${exportBy(table)}), or list the current files by their full paths, without wildcards`,
    },
  );
}
