import type { PinnedTable } from "./plan.js";
import { JobError } from "../../base/errors.js";

/**
 * A table format whose folders hold data files of removed and rewritten rows as well as current ones. Only its log tells
 * them apart.
 */
export interface LakeTable {
  readonly format: string;
  readonly log: string;
  /** Whether a file in that folder belongs to such a log, by its name. */
  readonly isLogFile: (name: string) => boolean;
  /** How the current rows of a table are read. */
  readonly remedy: (table: string) => string;
}

function asTable(table: string): string {
  return `read the table's current rows: write input.table: ${table} in place of input.path`;
}

/** The table formats that are recognized. */
export const lakeTables: readonly LakeTable[] = [
  {
    format: "Delta Lake",
    log: "_delta_log",
    isLogFile: (name) => /\.json$|\.parquet$|^_last_checkpoint$/.test(name),
    remedy: asTable,
  },
  {
    format: "Iceberg",
    log: "metadata",
    isLogFile: (name) => /^(v\d+|\d{5,}-.*)(\.gz)?\.metadata\.json(\.gz)?$|^snap-.*\.avro$|-m\d+\.avro$/.test(name),
    remedy: asTable,
  },
  {
    format: "Hudi",
    log: ".hoodie",
    isLogFile: () => true,
    remedy: (table) =>
      `export the table's current rows and read those (spark.read.format("hudi").load("${table}").write.parquet("snapshot") in Spark), or list the current files by their full paths, without wildcards`,
  },
];

/** The SPEC_INVALID error for a pattern that matches a table's data files. */
export function lakeTableError(pattern: string, table: string, { format, remedy }: LakeTable): JobError {
  return new JobError(
    "SPEC_INVALID",
    `${pattern} matches data files of the ${format} table ${table}, those of deleted and rewritten rows among them`,
    { hint: remedy(table) },
  );
}

/** "Delta version 12", "Iceberg snapshot 8633778438556666410"; what is read of a topic is too long to show. */
export function versionText({ format, version }: Pick<PinnedTable, "format" | "version">): string {
  const texts = {
    delta: `Delta version ${version}`,
    iceberg: `Iceberg snapshot ${version}`,
    kafka: "what is committed",
  };
  return texts[format];
}
