import { sha256Of } from "../../util/sha256.js";
import type { RunId } from "../../plan/plan.js";

/** Quotes any name for SQL. Names from a spec have passed its allow-list before. */
export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export interface TableName {
  readonly schema: string;
  readonly table: string;
}

export function quoteTable({ schema, table }: TableName): string {
  return `${quoteName(schema)}.${quoteName(table)}`;
}

export function showTable({ schema, table }: TableName): string {
  return `${schema}.${table}`;
}

/** Appends a suffix to a table's name, which is shortened to Postgres's limit of 63 bytes. */
export function derivedName({ schema, table }: TableName, suffix: string): TableName {
  return { schema, table: `${table.slice(0, 63 - suffix.length)}${suffix}` };
}

/** The staging table of a run that replaces the target's rows. */
export function stagingTable(target: TableName, runId: RunId): TableName {
  // The digest is made from the whole name: a long one is cut off before the suffix.
  return derivedName(target, `__staging_${shortHash(`${showTable(target)} ${runId}`)}`);
}

/** The table of the rows of a staged run in mode append or upsert until they are published. */
export function stagedRowsTable(schema: string, runId: RunId): TableName {
  return { schema, table: `staging_${shortHash(runId)}` };
}

/** The table of the keys of an unfinished run. */
export function keysTable(schema: string, runId: RunId): TableName {
  return { schema, table: `keys_${shortHash(runId)}` };
}

/** The table of the answers of an unfinished run. */
export function answersTable(schema: string, runId: RunId): TableName {
  return { schema, table: `answers_${shortHash(runId)}` };
}

/** 12 hex digits that name a run's own tables. */
export function shortHash(text: string): string {
  return sha256Of(text).slice(0, 12);
}
