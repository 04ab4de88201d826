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
