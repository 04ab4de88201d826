import { quoteName } from "../../base/sql.js";
import { type ColumnType, showType, type SourceColumn, type TableColumn, type TableRows } from "../../columns/types.js";
import { sqlTypeOf } from "../../duckdb/sql.js";
import { JobError } from "../../base/errors.js";
import { constantSql, refuseNames, fileRowNumber } from "../sql/slice-sql.js";

/** What a footer says of a column of values: see `Leaf`. */
interface StoredLeaf {
  readonly column: number;
  readonly fieldId: number | undefined;
  readonly leafId: number | undefined;
  readonly path: readonly string[];
  readonly type: number;
  readonly annotation: string;
}

/** The columns of a file as those of a table. */
export interface MappedColumns {
  /** Names that the columns of the file have in the table, by their numbers; others are not the table's. */
  readonly names: ReadonlyMap<number, string>;
  /** What SQL selects of the file. */
  readonly select: string;
  /** Columns of the table that cannot be read from the file though their types fit, and what of the file's is wrong. */
  readonly unfit: readonly (readonly [column: string, what: string])[];
}

/**
 * Finds the columns of a table in a file: by their ids where the file numbers its columns, else by name, whose case differs
 * in files that were Parquet before they were a table's.
 * @throws JobError SPEC_INVALID where nothing says which columns these are
 */
export function mapColumns(leaves: readonly StoredLeaf[], { columns }: TableRows, path: string): MappedColumns {
  refuseNames(
    path,
    columns.map(({ name }) => name),
  );
  const stored = new Map(leaves.map((leaf) => [leaf.column, leaf]));
  const hasIds = leaves.some(({ fieldId }) => fieldId !== undefined);
  if (!hasIds && columns.every(({ storedNames }) => storedNames.length === 0)) {
    throw new JobError(
      "SPEC_INVALID",
      `reading ${path}: it does not number its columns, and the table has no names for them`,
      {
        hint: "set the table's property schema.name-mapping.default, or rewrite its data files",
      },
    );
  }
  const byId = new Map([...stored.values()].map((leaf) => [leaf.fieldId, leaf]));
  const byName = new Map([...stored.values()].map((leaf) => [leaf.path[0]?.toLowerCase(), leaf]));

  const names = new Map<number, string>();
  const unfit: (readonly [string, string])[] = [];
  const idsIn = new Map<number, (number | undefined)[]>();
  for (const { column, leafId } of leaves) {
    const ids = idsIn.get(column) ?? [];
    ids.push(leafId);
    idsIn.set(column, ids);
  }
  const once = new Map<string, boolean>();
  for (const {
    path: [name = ""],
  } of stored.values()) {
    once.set(name.toLowerCase(), !once.has(name.toLowerCase()));
  }
  const selected = columns.flatMap((column) => {
    const { name, fieldId, leafIds, storedNames, type, isPartition } = column;
    if (isPartition || type === undefined) {
      return [];
    }
    const isById = hasIds && fieldId !== undefined;
    const leaf = isById ? byId.get(fieldId) : storedNames.map((each) => byName.get(each.toLowerCase())).find(Boolean);
    if (leaf !== undefined) {
      names.set(leaf.column, name);
      const ids = isById ? (idsIn.get(leaf.column) ?? []) : [];
      if (leafIds !== undefined && ids.some((id, index) => id !== undefined && id !== leafIds[index])) {
        unfit.push([name, " of other field ids"]);
      }
      if (once.get(leaf.path[0]?.toLowerCase() ?? "") !== true) {
        unfit.push([name, ", one of two whose names differ in case,"]); // DuckDB takes either for the first one
      }
    }
    return [`${leaf === undefined ? constantSql(column.default, type) : storedSql(leaf, type)} AS ${quoteName(name)}`];
  });
  return { names, select: [fileRowNumber, ...selected].join(", "), unfit };
}

/** The number of a physical type of parquet.thrift. */
const int96 = 3;

function storedSql({ path: [name = ""], type: physical, annotation }: StoredLeaf, type: ColumnType): string {
  const stored = quoteName(name);
  const inUtc = physical === int96 || !annotation.endsWith("UTC") ? utcSql(stored, type) : undefined;
  // Nothing is cast where the types are equal; those of fields are.
  const isStruct = typeof type === "object" && type.kind === "struct";
  return inUtc ?? (isStruct ? stored : `CAST(${stored} AS ${sqlTypeOf(type)})`);
}

/** For times in UTC; undefined: for other types. A plain cast would take them for times of the job's zone. */
function utcSql(sql: string, type: ColumnType): string | undefined {
  if (type === "timestamp[us, UTC]") {
    return `timezone('UTC', ${sql})`;
  }
  const element = typeof type === "object" && type.kind === "list" ? utcSql("x", type.element) : undefined;
  return element && `list_transform(${sql}, lambda x: ${element})`;
}

/**
 * The columns of a table, as its rows in a file have them. A column of the file that cannot become the table's has no
 * type, so that a job which uses it is refused.
 * @param stored the file's columns, with the names that they have in the table
 * @param unfit as `MappedColumns` has it
 */
export function tableSchema(
  stored: readonly SourceColumn[],
  columns: readonly TableColumn[],
  unfit: MappedColumns["unfit"] = [],
): SourceColumn[] {
  const wrong = new Map(unfit);
  const byName = new Map(stored.map((column) => [column.name, column]));
  return columns.map(({ name, type, isPartition }): SourceColumn => {
    if (type === undefined) {
      return { name, sourceType: "a type that is not read", type };
    }
    if (isPartition) {
      return { name, sourceType: showType(type), type, partition: true };
    }
    const column = byName.get(name);
    const what = wrong.get(name);
    const fits =
      column === undefined ||
      (what === undefined && (column.onlyNulls === true || (column.type !== undefined && becomes(column.type, type))));
    if (fits) {
      return { name, sourceType: sqlTypeOf(type), type };
    }
    const inFile = `${column.sourceType}${what ?? ""} in the file`;
    return { name, sourceType: `${inFile} and ${showType(type)} in the table`, type: undefined };
  });
}

/** Whether all values of a type are values of another one, as tables widen their columns. */
function becomes(from: ColumnType, to: ColumnType): boolean {
  if (showType(from) === showType(to)) {
    return true;
  }
  const bits = integerBits(from);
  if (typeof to === "string") {
    return (
      (bits !== undefined && (bits < (integerBits(to) ?? 0) || (to === "float64" && bits <= 32))) ||
      (from === "float32" && to === "float64") ||
      (from === "date32" && to === "timestamp[us]") ||
      (from === "timestamp[us]" && to === "timestamp[us, UTC]")
    );
  }
  if (to.kind === "list") {
    return typeof from === "object" && from.kind === "list" && becomes(from.element, to.element);
  }
  if (to.kind === "struct") {
    return false;
  }
  const whole = to.precision - to.scale;
  return typeof from === "object"
    ? from.kind === "decimal" && from.scale <= to.scale && from.precision - from.scale <= whole
    : bits !== undefined && whole >= (bits <= 32 ? 10 : 20);
}

function integerBits(type: ColumnType): number | undefined {
  const [, bits] = /^int(\d+)$/.exec(showType(type)) ?? [];
  return bits === undefined ? undefined : Number(bits);
}
