import type { JoinRequest, MatchedRows } from "../checks/agreement/matched-rows.js";
import { differsSql } from "./differs-sql.js";
import { type JoinSide, rowsOf, type RowJoin, typeOf } from "./row-join.js";
import { convertingKeys, type KeyColumn, sharedKey } from "./key-types.js";
import { countPasses, isInPass, repeatedKeys } from "./passes.js";
import { quoteName } from "./sql.js";

/** The number of repeated keys that are named. */
const shownKeys = 5;
/**
 * Joins the rows of the keys that are once in each table into the table `joined`, and counts the rows of both tables by
 * their keys. Large tables are joined in several passes, each over the keys with some of the hashes.
 */
export async function joinByKey(
  join: RowJoin,
  request: JoinRequest,
): Promise<MatchedRows & { readonly changed: number }> {
  const keys = await sharedKey(join, request.key);
  const tables = await keyTables(join, keys, request.columns);
  await convertingKeys(keys, () => joinPasses(join, tables, request.columns));
  return { ...(await countRows(join, tables.names)), changed: await countChanged(join, request) };
}

async function joinPasses(join: RowJoin, tables: KeyTables, columns: readonly string[]): Promise<void> {
  const values = columns.flatMap((_, index) => [`a.v${index} AS a${index}`, `b.v${index} AS b${index}`]);
  const selected = [...tables.names.map((name) => `a.${name}`), ...values].join(", ");
  const run = async (sql: string): Promise<unknown> => await join.connection.run(sql);
  await run(`CREATE TEMP TABLE repeated AS SELECT ${tables.names.join(", ")}, 0::BIGINT AS "in a", 0::BIGINT AS "in b"
    FROM ${tables.rows("a", 0)} LIMIT 0`);
  await run(`CREATE TEMP TABLE joined AS SELECT ${selected}
    FROM ${tables.rows("a", 0)} AS a JOIN ${tables.rows("b", 0)} AS b ON ${tables.equal("a", "b")} LIMIT 0`);
  for (let pass = 0; pass < tables.passes; pass += 1) {
    const [a, b] = [tables.rows("a", pass), tables.rows("b", pass)];
    await findRepeated(join, tables, [a, b]);
    // First without the keys that repeat: a key that is 100,000 times in both would give 10^10 rows.
    await run(`INSERT INTO joined SELECT ${selected}
      FROM (SELECT * FROM ${a} AS a ANTI JOIN several ON ${tables.equal("a", "several")}) AS a
      JOIN ${b} AS b ON ${tables.equal("a", "b")}`);
  }
}

/** The rows of both tables: keys as columns k0, k1, … of types that both sides share, and compared columns v0, v1, … */
interface KeyTables {
  readonly names: readonly string[];
  readonly passes: number;
  /** SQL for the rows of a table with the keys of a pass. */
  readonly rows: (side: JoinSide, pass: number) => string;
  /** SQL for whether the keys of two tables are equal. */
  readonly equal: (one: string, other: string) => string;
}

async function keyTables(join: RowJoin, key: readonly KeyColumn[], columns: readonly string[]): Promise<KeyTables> {
  const keys = key.map(({ sql }) => sql);
  const names = keys.map((_, index) => `k${index}`);
  const passes = await countPasses(join.connection, join.memoryBytes);
  const selected = [
    ...keys.map((sql, index) => `${sql} AS k${index}`),
    ...columns.map((name, index) => `${quoteName(name)} AS v${index}`),
  ].join(", ");
  return {
    names,
    passes,
    rows(side, pass) {
      return `(SELECT ${selected} FROM ${side} WHERE ${isInPass(keys, pass, passes)})`;
    },
    equal: (one, other) => names.map((name) => `${one}.${name} IS NOT DISTINCT FROM ${other}.${name}`).join(" AND "),
  };
}

/**
 * Finds the keys that are several times in a side: the table `several` has those of this pass, `repeated` those of all
 * passes.
 */
async function findRepeated(
  join: RowJoin,
  { names, equal }: KeyTables,
  [a, b]: readonly [string, string],
): Promise<void> {
  const keys = names.join(", ");
  const [[found] = []] = await rowsOf(
    join,
    `CREATE OR REPLACE TEMP TABLE several AS ${repeatedKeys(names, a)} UNION ${repeatedKeys(names, b)}`,
  );
  if (Number(found) === 0) {
    return;
  }
  const counted = (rows: string): string =>
    `(SELECT ${keys}, count(*) AS n FROM ${rows} AS r SEMI JOIN several ON ${equal("r", "several")} GROUP BY ${keys})`;
  await join.connection.run(
    `INSERT INTO repeated SELECT ${names.map((name) => `several.${name}`).join(", ")}, coalesce(a.n, 0), coalesce(b.n, 0)
     FROM several LEFT JOIN ${counted(a)} AS a ON ${equal("a", "several")}
     LEFT JOIN ${counted(b)} AS b ON ${equal("b", "several")}`,
  );
}

async function countRows(join: RowJoin, names: readonly string[]): Promise<MatchedRows> {
  const [sizes = []] = await rowsOf(
    join,
    "SELECT (SELECT count(*) FROM a)::DOUBLE, (SELECT count(*) FROM b)::DOUBLE, (SELECT count(*) FROM joined)::DOUBLE",
  );
  const [rowsA = 0, rowsB = 0, matched = 0] = sizes.map(Number);
  const [counts = []] = await rowsOf(
    join,
    `SELECT count(*)::DOUBLE, (count(*) FILTER (WHERE "in a" <> "in b"))::DOUBLE,
       (sum("in a") FILTER (WHERE "in b" > 0))::DOUBLE, (sum("in b") FILTER (WHERE "in a" > 0))::DOUBLE FROM repeated`,
  );
  const [repeated = 0, uneven = 0, repeatedA = 0, repeatedB = 0] = counts.map(Number);
  const examples = await rowsOf(
    join,
    `SELECT concat_ws(', ', ${names.map((name) => `coalesce(left(${name}::VARCHAR, 60), 'NULL')`).join(", ")}),
       "in a"::DOUBLE, "in b"::DOUBLE FROM repeated ORDER BY abs("in a" - "in b") DESC, 1 LIMIT ${shownKeys}`,
  );
  return {
    rowsA,
    rowsB,
    onlyA: rowsA - matched - repeatedA,
    onlyB: rowsB - matched - repeatedB,
    matched,
    repeated,
    uneven,
    examples: examples.map(([text, one, other]) => ({ key: String(text), a: Number(one), b: Number(other) })),
  };
}

/** Counts the joined rows that differ in one of the columns. */
async function countChanged(join: RowJoin, { columns, tolerance }: JoinRequest): Promise<number> {
  const differs = columns.map((name, index) =>
    differsSql([`a${index}`, `b${index}`], [typeOf(join, "a", name), typeOf(join, "b", name)], tolerance),
  );
  const where = differs.length === 0 ? "false" : differs.join(" OR ");
  const [[changed] = []] = await rowsOf(join, `SELECT count(*)::DOUBLE FROM joined WHERE ${where}`);
  return Number(changed);
}
