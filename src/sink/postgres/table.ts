import { type ColumnType, showType } from "../../columnar/types.js";
import { outputColumns } from "../../binding/contract.js";
import type { Plan } from "../../plan/plan.js";
import { JobError } from "../../util/errors.js";
import type { Session } from "./connections.js";
import { lock } from "./locks.js";
import { quoteName, quoteTable, showTable, type TableName } from "./names.js";
import { fits, isPgName, type PgType, pgTypeOf, sqlOf } from "./types.js";

/** A column that is to be written. */
interface OutputColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A column of the table. */
export interface TableColumn {
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
  readonly columns: readonly TableColumn[];
}

interface CatalogRow extends Omit<TableColumn, "name" | "type">, Omit<FoundTable, "columns"> {
  readonly name: string | null;
  readonly base: string;
  readonly element: string | null;
  readonly typmod: number;
}

/** SQL for whether this role may read all rows of the table `c`, a row of pg_class. */
export const readsAllRows = "has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid)";

/** SQL for the quoted name of the collation of `pg_attribute`. Postgres 12 has no `regcollation`. */
export const collationName = `(SELECT format('%I.%I', n.nspname, l.collname) FROM pg_collation l
  JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = attcollation)`;

/** Reads a table's columns; undefined when there is no such table. */
export async function findTable(session: Session, name: TableName): Promise<FoundTable | undefined> {
  const { rows } = await session.query<CatalogRow>({
    text: `SELECT c.oid::int8::float8 AS oid, c.relkind AS kind, c.relpersistence = 'u' AS unlogged, a.attname AS name,
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
  const { oid, kind, unlogged } = first;
  const columns = rows.flatMap(({ name: column, shown, notNull, filled, generated, computed, ...row }) =>
    column === null ? [] : [{ name: column, shown, type: typeOf(row), notNull, filled, generated, computed }],
  );
  return { oid, kind, unlogged, columns };
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

function whatIsWrong(type: ColumnType, target: TableColumn | undefined): string {
  if (target === undefined) {
    return "missing in the table";
  }
  if (target.generated) {
    return "generated by the table";
  }
  return target.type !== undefined && fits(type, target.type) ? "" : `does not fit: ${sqlOf(pgTypeOf(type))} would`;
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
        `writing to ${showTable(name)}: column ${column} was ${sqlOf(wanted)} when the run began, and is ${now?.shown ?? "gone"}`,
        {
          hint: "change it back, or run the same command again: it checks again whether the columns fit; committed spans are kept",
        },
      );
    }
  }
}

/** Makes the table, and its schema where that is missing. Needs a transaction. */
export async function createTable(
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
    ({ name: column, type }) => `${quoteName(column)} ${sqlOf(pgTypeOf(type))}`,
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
