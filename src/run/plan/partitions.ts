import type { ColumnType, SourceColumn } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import type { PartitionType } from "../../job/jobfile/input-spec.js";
import { isCalendarDate } from "./identity.js";

/** The folder value that Hive writes for NULL. */
const hiveNull = "__HIVE_DEFAULT_PARTITION__";

interface TypeRule {
  readonly type: ColumnType;
  readonly fits: (text: string) => boolean;
}

const rules: Readonly<Record<PartitionType, TypeRule>> = {
  text: { type: "utf8", fits: () => true },
  date: { type: "date32", fits: isCalendarDate },
  int64: {
    type: "int64",
    fits: (text) => /^-?\d{1,19}$/.test(text) && BigInt.asIntN(64, BigInt(text)) === BigInt(text),
  },
  float64: { type: "float64", fits: (text) => /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) },
  bool: { type: "bool", fits: (text) => /^(true|false)$/i.test(text) },
};

/** The `key=value` folders of a shard's URI, in Hive's naming: values are escaped with %xx, and NULL has its own. */
export function partitionsOf(uri: string): ReadonlyMap<string, string | null> {
  if (!uri.includes("=")) {
    return noPartitions;
  }
  const found = new Map<string, string | null>();
  for (const folder of uri.split("/").slice(0, -1)) {
    const at = folder.indexOf("=");
    if (at > 0) {
      const value = unescape(folder.slice(at + 1));
      found.set(unescape(folder.slice(0, at)), value === hiveNull ? null : value);
    }
  }
  return found;
}

/** Shared by all shards without partitions, because there may be many. */
const noPartitions: ReadonlyMap<string, string | null> = new Map<string, string | null>();

function unescape(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a % that is not an escape
  }
}

/**
 * The columns that a shard's folders give, with the types of `input.partitions`, text by default. A column of that name
 * in the file takes precedence.
 * @throws JobError SCHEMA_MISMATCH when a value does not fit its type
 */
export function partitionColumns(
  uri: string,
  inFile: readonly SourceColumn[],
  types: Readonly<Record<string, PartitionType>>,
): SourceColumn[] {
  const names = new Set(inFile.map(({ name }) => name.toLowerCase()));
  const columns: SourceColumn[] = [];
  for (const [name, value] of partitionsOf(uri)) {
    if (names.has(name.toLowerCase())) {
      continue;
    }
    const declared = Object.hasOwn(types, name) ? (types[name] ?? "text") : "text";
    const { type, fits } = rules[declared];
    if (value !== null && !fits(value)) {
      throw new JobError(
        "SCHEMA_MISMATCH",
        `planning: the folder ${name}=${value} of ${uri} is not of type ${declared}`,
        {
          hint: `input.partitions says ${name}: ${declared}; correct it, or take that folder out of input.path`,
        },
      );
    }
    columns.push({ name, sourceType: `${declared}, from the folder name`, type, partition: true });
  }
  return columns;
}

/** Returns the columns that the names of output folders give to readers, in lower case: `dt` of `out/dt=2026-01-31`. */
export function foldersIn(path: string): ReadonlySet<string> {
  return new Set([...partitionsOf(`${path}/`).keys()].map((name) => name.toLowerCase()));
}

/**
 * Warns of output columns that the names of the output's folders give, too; undefined: there are none. Case does not
 * count, as in Spark and DuckDB.
 */
export function twiceText(columns: readonly string[], path: string): string | undefined {
  const folders = foldersIn(path);
  const twice = columns.filter((name) => folders.has(name.toLowerCase()));
  if (twice.length === 0) {
    return undefined;
  }
  const [are, them] = twice.length === 1 ? ["column", "it"] : ["columns", "them"];
  return (
    `the name of the output folder, ${path}, has output ${are} ${twice.map((name) => `\`${name}\``).join(", ")}, too: ` +
    "pandas and pyarrow cannot read such folders as one table, and Spark and DuckDB take the value in the folder's name. " +
    `Leave ${them} out of the output, or give the folder another name`
  );
}
