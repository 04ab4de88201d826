import type { SourceColumn } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";
import type { ArrowIndex, OpenArrow } from "./ipc/shards.js";
import { sourceColumns } from "./ipc/types.js";
import { reservedName, rowNumberColumn } from "../sql/slice-sql.js";
import type { ShardFile, ShardFooter, ShardSchema } from "../port.js";

/** Files that are open at once. */
const filesAtOnce = 16;

/** `schemas`: those that were met before; files with the same columns get the same object. */
export async function* arrowFooters(
  files: readonly ShardFile[],
  open: (file: ShardFile) => Promise<OpenArrow>,
  schemas = new Map<string, ShardSchema>(),
): AsyncGenerator<ShardFooter> {
  for (let start = 0; start < files.length; start += filesAtOnce) {
    const group = files.slice(start, start + filesAtOnce).map(async (file) => {
      await using shard = await open(file);
      return { file, index: shard.index };
    });
    for (const { file, index } of await Promise.all(group)) {
      const { path } = file;
      const columns = columnsOf(path, index);
      const key = JSON.stringify(columns);
      const schema = schemas.get(key) ?? { columns, unreadable: [], legacyDates: [] };
      schemas.set(key, schema);
      const { rows, batches, sizeBytes } = index;
      yield { path, rows, rowGroups: batches.length, sizeBytes, schema, encrypted: [], nulls: new Map() };
    }
  }
}

/** @throws JobError SCHEMA_MISMATCH for names that are equal ignoring case */
export function columnsOf(path: string, { schema }: ArrowIndex): SourceColumn[] {
  const columns = sourceColumns(schema);
  const names = new Set<string>();
  for (const { name } of columns) {
    const folded = name.toLowerCase();
    if (names.has(folded)) {
      throw new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: two columns are called \`${name}\``, {
        hint: "names must differ in more than upper and lower case; rename one of them",
      });
    }
    if (folded === rowNumberColumn) {
      throw reservedName(path);
    }
    names.add(folded);
  }
  return columns;
}
