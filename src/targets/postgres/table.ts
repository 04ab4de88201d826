import { quoteName } from "../../base/sql.js";
import { sha256Of } from "../../base/sha256.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import { type ColumnType, type ScalarType, showType } from "../../columns/types.js";
import { outputColumns } from "../../models/binding/contract.js";
import { assertNever, JobError } from "../../base/errors.js";
import { lock, type Session } from "./connections.js";

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

interface OutputColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A column of the table. */
export interface PgColumn {
  readonly name: string;
  /** The type as Postgres shows it. */
  readonly shown: string;
  /** undefined: a type that this program does not write. */
  readonly type: PgType | undefined;
  readonly notNull: boolean;
  /** Filled by the table where no value is given. */
  readonly filled: boolean;
  /** Computed, or an identity that is always generated: no value may be given. */
  readonly generated: boolean;
  /** Computed from other columns: no value can be given at all. */
  readonly computed: boolean;
}

export interface FoundTable {
  readonly oid: number;
  /** `pg_class.relkind` */
  readonly kind: string;
  /** UNLOGGED: a crash of the server empties it. */
  readonly unlogged: boolean;
  /** Whether this role may read it; and whether policies of row-level security hide rows of it from this role. */
  readonly readable: boolean;
  readonly secured: boolean;
  readonly columns: readonly PgColumn[];
}

interface CatalogRow extends Omit<PgColumn, "name" | "type">, Omit<FoundTable, "columns"> {
  readonly name: string | null;
  readonly base: string;
  readonly element: string | null;
  readonly typmod: number;
}

/** SQL for the quoted name of the collation of `pg_attribute`. Postgres 12 has no `regcollation`. */
export const collationName = `(SELECT format('%I.%I', n.nspname, l.collname) FROM pg_collation l
  JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = attcollation)`;

/** Reads a table's columns; undefined when there is no such table. */
export async function findTable(session: Session, name: TableName): Promise<FoundTable | undefined> {
  const { rows } = await session.query<CatalogRow>({
    text: `SELECT c.oid::int8::float8 AS oid, c.relkind AS kind, c.relpersistence = 'u' AS unlogged,
        has_table_privilege(c.oid, 'SELECT') AS readable, row_security_active(c.oid) AS secured, a.attname AS name,
        format_type(a.atttypid, a.atttypmod) AS shown,
        CASE WHEN b.typname = 'vector' AND v.proname <> 'vector_recv' THEN 'another vector' ELSE b.typname END AS base,
        e.typname AS element,
        CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE t.typtypmod END AS typmod,
        a.attnotnull OR t.typnotnull AS "notNull", a.atthasdef OR a.attidentity <> '' AS filled,
        a.attgenerated <> '' OR a.attidentity = 'a' AS generated, a.attgenerated <> '' AS computed
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
      LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
      LEFT JOIN pg_proc v ON v.oid = b.typreceive
      WHERE n.nspname = $1 AND c.relname = $2 ORDER BY a.attnum`,
    values: [name.schema, name.table],
  });
  const [first] = rows;
  if (first === undefined) {
    return undefined;
  }
  const { oid, kind, unlogged, readable, secured } = first;
  const columns = rows.flatMap(({ name: column, shown, notNull, filled, generated, computed, ...row }) =>
    column === null ? [] : [{ name: column, shown, type: typeOf(row), notNull, filled, generated, computed }],
  );
  return { oid, kind, unlogged, readable, secured, columns };
}

export async function oidOf(session: Session, name: TableName): Promise<number | undefined> {
  return (await findTable(session, name))?.oid;
}

function typeOf({ base, element, typmod }: Pick<CatalogRow, "base" | "element" | "typmod">): PgType | undefined {
  const name = element ?? base;
  if (!isPgName(name) || (name === "vector" && element !== null)) {
    return undefined;
  }
  // https://www.postgresql.org/docs/current/catalog-pg-attribute.html: typmods count 4 bytes of a former header
  const parameter = typmod - 4;
  const isText = name === "varchar" || name === "bpchar";
  return {
    name,
    array: element !== null,
    maxLength: isText && parameter >= 0 ? parameter : undefined,
    decimal:
      name === "numeric" && parameter >= 0
        ? { precision: parameter >> 16, scale: ((parameter & 0x7ff) ^ 0x400) - 0x400 }
        : undefined,
    ...(name === "vector" && typmod >= 0 ? { dimensions: typmod } : {}), // pgvector counts no header
  };
}

/** What an object that depends on the table `c` is called. Objects that are dropped with the table do not keep it. */
const dependents = `
  SELECT DISTINCT coalesce('view ' || r.ev_class::regclass, pg_describe_object(d.classid, d.objid, 0)) AS shown
  FROM pg_depend d LEFT JOIN pg_type t ON t.oid = c.reltype
    LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
  WHERE d.deptype = 'n' AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
      OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray))
    AND NOT EXISTS (SELECT FROM pg_depend own WHERE (own.classid, own.objid) = (d.classid, d.objid)
      AND own.refclassid = 'pg_class'::regclass AND own.refobjid = c.oid AND own.deptype IN ('a', 'i'))`;

/** A table that a run may have left, and what this role may do to it. */
export interface LeftTable extends TableName {
  readonly owner: string;
  readonly mayDrop: boolean;
  readonly mayErase: boolean;
  readonly role: string;
  readonly bytes: number;
  /** Why this role cannot drop it; null: nothing that its owner and its dependents tell. */
  readonly keptBy: string | null;
}

/** Returns those of the tables that exist, of any owner. */
export async function lookAtTables(session: Session, names: readonly TableName[]): Promise<readonly LeftTable[]> {
  const { rows } = await session.query<LeftTable>({
    text: `SELECT w.schema, w.table, pg_get_userbyid(c.relowner) AS owner, pg_has_role(c.relowner, 'USAGE') AS "mayDrop",
        has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE') AS "mayErase", current_user AS role,
        pg_total_relation_size(c.oid)::float8 AS bytes,
        CASE WHEN pg_has_role(c.relowner, 'USAGE') OR pg_has_role(n.nspowner, 'USAGE')
          THEN (SELECT string_agg(shown, ', ' ORDER BY shown) || ' depends on it' FROM (${dependents}) d)
          ELSE 'it belongs to ' || pg_get_userbyid(c.relowner) END AS "keptBy"
      FROM unnest($1::text[], $2::text[]) AS w (schema, "table")
      JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.table`,
    values: [names.map(({ schema }) => schema), names.map(({ table }) => table)],
  });
  return rows;
}

/** A column of the table that rows are written to. */
export interface TargetColumn {
  /** OID of its table. */
  readonly table: number;
  readonly name: string;
  readonly type: PgType & {
    /** Whether it takes no NULL; "key": since it is part of `output.postgres.key`. */
    readonly notNull: boolean | "key";
  };
}

/** Matches output columns with the table's, in output order. @throws JobError OUTPUT_MISMATCH that shows both sides */
export function fitColumns(name: TableName, found: FoundTable, output: readonly OutputColumn[]): TargetColumn[] {
  if (found.kind !== "r" && found.kind !== "p") {
    throw new JobError("OUTPUT_MISMATCH", `checking ${showTable(name)}: it is not a table`, {
      hint: "output.postgres.table must name a table, not a view or an index",
    });
  }
  const there = new Map(found.columns.map((column) => [column.name, column]));
  const lines: string[][] = [["output", "table", ""]];
  const targets: TargetColumn[] = [];
  let bad = 0;
  for (const { name: column, type } of output) {
    const target = there.get(column);
    there.delete(column);
    const wrong = whatIsWrong(type, target);
    bad += wrong === "" ? 0 : 1;
    lines.push([`${column} ${showType(type)}`, target === undefined ? "-" : `${target.name} ${target.shown}`, wrong]);
    if (target?.type !== undefined) {
      targets.push({ table: found.oid, name: column, type: { ...target.type, notNull: target.notNull } });
    }
  }
  for (const { name: column, shown, notNull, filled } of there.values()) {
    const wrong = notNull && !filled ? "NOT NULL, and nothing to put there" : "";
    bad += wrong === "" ? 0 : 1;
    lines.push(["-", `${column} ${shown}`, wrong]);
  }
  if (bad > 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: ${bad === 1 ? "one column does" : `${bad} columns do`} not fit\n\n${aligned(lines)}\n`,
      { hint: "change the table, output.columns or model.outputs; names must match exactly" },
    );
  }
  return targets;
}

function whatIsWrong(type: ColumnType, target: PgColumn | undefined): string {
  if (target === undefined) {
    return "missing in the table";
  }
  if (target.generated) {
    return "generated by the table";
  }
  return target.type !== undefined && fits(type, target.type) ? "" : `does not fit: ${pgTypeSql(pgTypeOf(type))} would`;
}

function aligned(lines: readonly string[][]): string {
  const widths = [0, 1].map((index) => Math.max(...lines.map((line) => (line[index] ?? "").length)));
  return lines
    .map((line) => `  ${line.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join("   ")}`.trimEnd())
    .join("\n");
}

/**
 * Refuses a table that changed since the run began. Called in a transaction that has written to the table, so that no
 * other session can alter it. COPY's binary format has no types: an integer column would take the bytes of a real one
 * as an integer.
 * @throws JobError OUTPUT_DAMAGED when it is another table, OUTPUT_MISMATCH when its columns differ
 */
export async function refuseChanged(
  session: Session,
  name: TableName,
  columns: readonly TargetColumn[],
): Promise<void> {
  const found = await findTable(session, name);
  const there = new Map(found?.columns.map((column) => [column.name, column]));
  for (const { table, name: column, type } of columns) {
    if (found?.oid !== table) {
      throw new JobError(
        "OUTPUT_DAMAGED",
        `writing to ${showTable(name)}: it is another table than when the run began`,
        {
          hint: "the table before it had the rows of committed spans; restore that table, and run the same command again",
        },
      );
    }
    const { notNull: _, ...wanted } = type;
    const now = there.get(column);
    if (now === undefined || now.generated || JSON.stringify(now.type) !== JSON.stringify(wanted)) {
      throw new JobError(
        "OUTPUT_MISMATCH",
        `writing to ${showTable(name)}: column ${column} was ${pgTypeSql(wanted)} when the run began, and is ${now?.shown ?? "gone"}`,
        {
          hint: "change it back, or run the same command again: it checks again whether the columns fit; committed spans are kept",
        },
      );
    }
  }
}

/** Makes the table, and its schema where that is missing. Needs a transaction. */
export async function createTargetTable(
  session: Session,
  name: TableName,
  plan: Plan,
  key: readonly string[],
): Promise<void> {
  if (!(await hasSchema(session, name.schema))) {
    await lock(session, name.schema); // jobs with other tables make it, too
    if (!(await hasSchema(session, name.schema))) {
      await session.query(`CREATE SCHEMA ${quoteName(name.schema)}`);
    }
  }
  const definitions = outputColumns(plan.contract).map(
    ({ name: column, type }) => `${quoteName(column)} ${pgTypeSql(pgTypeOf(type))}`,
  );
  const comment = `Predictions of job ${plan.job}`;
  const primary = key.length === 0 ? [] : [`PRIMARY KEY (${key.map(quoteName).join(", ")})`];
  await session.query(`CREATE TABLE IF NOT EXISTS ${quoteTable(name)} (${[...definitions, ...primary].join(", ")})`);
  await session.query(`COMMENT ON TABLE ${quoteTable(name)} IS '${comment.replaceAll("'", "''")}'`);
}

export async function hasSchema(session: Session, schema: string): Promise<boolean> {
  const { rows } = await session.query({ text: "SELECT 1 FROM pg_namespace WHERE nspname = $1", values: [schema] });
  return rows.length > 0;
}

/** Postgres types that columns can be written to, by their names in `pg_type`, with their OIDs. */
export const typeOids = {
  bool: 16,
  bytea: 17,
  int8: 20,
  int2: 21,
  int4: 23,
  text: 25,
  json: 114,
  float4: 700,
  float8: 701,
  bpchar: 1042,
  varchar: 1043,
  date: 1082,
  time: 1083,
  timestamp: 1114,
  timestamptz: 1184,
  interval: 1186,
  timetz: 1266,
  numeric: 1700,
  uuid: 2950,
  jsonb: 3802,
} as const;

type BuiltInName = keyof typeof typeOids;
/** With `vector` of the extension pgvector, whose OID differs from database to database. */
export type PgName = BuiltInName | "vector";

/** The type of a table's column. */
export interface PgType {
  readonly name: PgName;
  readonly array: boolean;
  /** Length of varchar(n) and char(n), in characters. */
  readonly maxLength: number | undefined;
  /** Precision and scale of numeric(p,s). */
  readonly decimal: { readonly precision: number; readonly scale: number } | undefined;
  /** Numbers of a vector(n); absent: a vector of any length, or another type. */
  readonly dimensions?: number | undefined;
}

function isPgName(name: string): name is PgName {
  return Object.hasOwn(typeOids, name) || name === "vector";
}

const sqlNames: Partial<Readonly<Record<PgName, string>>> = {
  bool: "boolean",
  int2: "smallint",
  int4: "integer",
  int8: "bigint",
  float4: "real",
  float8: "double precision",
  bpchar: "character",
  varchar: "character varying",
  time: "time without time zone",
  timetz: "time with time zone",
  timestamp: "timestamp without time zone",
  timestamptz: "timestamp with time zone",
};

/** Shows a type as `format_type` writes it: "numeric(10,2)", "real[]". */
export function pgTypeSql({ name, array, maxLength, decimal, dimensions }: PgType): string {
  const length = maxLength ?? dimensions;
  const parameters =
    length !== undefined ? `(${length})` : decimal !== undefined ? `(${decimal.precision},${decimal.scale})` : "";
  return `${sqlNames[name] ?? name}${parameters}${array ? "[]" : ""}`;
}

function plain(name: PgName): PgType {
  return { name, array: false, maxLength: undefined, decimal: undefined };
}

const scalars: Readonly<Record<ScalarType, PgName>> = {
  bool: "bool",
  int8: "int2",
  int16: "int2",
  int32: "int4",
  int64: "int8",
  uint8: "int2",
  uint16: "int4",
  uint32: "int8",
  uint64: "numeric",
  float32: "float4",
  float64: "float8",
  utf8: "text",
  binary: "bytea",
  uuid: "uuid",
  date32: "date",
  "time64[us]": "time",
  "time64[ns]": "time",
  "time64[us, zone]": "timetz",
  "timestamp[us]": "timestamp",
  "timestamp[ns]": "timestamp",
  "timestamp[us, UTC]": "timestamptz",
  interval: "interval",
};

/** The type of a column in a table that this program makes. Lists of lists and structs become jsonb. */
export function pgTypeOf(type: ColumnType): PgType {
  if (typeof type === "string") {
    const name = scalars[type];
    return type === "uint64" ? { ...plain(name), decimal: { precision: 20, scale: 0 } } : plain(name);
  }
  switch (type.kind) {
    case "decimal":
      return { ...plain("numeric"), decimal: { precision: type.precision, scale: type.scale } };
    case "list": {
      const element = pgTypeOf(type.element);
      return element.array || element.name === "jsonb" ? plain("jsonb") : { ...element, array: true };
    }
    case "struct":
      return plain("jsonb");
    default:
      return assertNever(type);
  }
}

/** The types, other than its own, that each type can be written to without loss. */
const wider: Partial<Readonly<Record<ScalarType, readonly PgName[]>>> = {
  int8: ["int4", "int8", "float4", "float8", "numeric"],
  int16: ["int4", "int8", "float4", "float8", "numeric"],
  int32: ["int8", "float8", "numeric"],
  int64: ["numeric"],
  uint8: ["int4", "int8", "float4", "float8", "numeric"],
  uint16: ["int8", "float4", "float8", "numeric"],
  uint32: ["float8", "numeric"],
  float32: ["float8"],
  utf8: ["varchar", "bpchar", "json", "jsonb"],
};

const integerDigits: Partial<Readonly<Record<ScalarType, number>>> = {
  int8: 3,
  uint8: 3,
  int16: 5,
  uint16: 5,
  int32: 10,
  uint32: 10,
  int64: 19,
  uint64: 20,
};

/**
 * Whether every value of `type` fits `target`; texts, vectors and extreme dates are checked row by row.
 * @public so that tests compare types
 */
export function fits(type: ColumnType, target: PgType): boolean {
  const isJson = target.name === "json" || target.name === "jsonb";
  if (typeof type !== "string" && type.kind !== "decimal") {
    if (type.kind === "list" && target.array) {
      return fits(type.element, { ...target, array: false });
    }
    if (target.name === "vector") {
      return type.kind === "list" && type.element === "float32" && !target.array;
    }
    return isJson && !target.array;
  }
  if (target.array) {
    return false;
  }
  if (target.name === "numeric") {
    return fitsNumeric(type, target);
  }
  return typeof type === "string" && (scalars[type] === target.name || wider[type]?.includes(target.name) === true);
}

function fitsNumeric(type: ScalarType | { precision: number; scale: number }, { decimal }: PgType): boolean {
  const [digits, scale] =
    typeof type === "string" ? [integerDigits[type], 0] : [type.precision - type.scale, type.scale];
  return (
    digits !== undefined &&
    (decimal === undefined || (decimal.scale >= scale && decimal.precision - decimal.scale >= digits))
  );
}
