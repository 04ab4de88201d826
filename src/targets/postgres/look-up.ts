import { DatabaseError, escapeLiteral, type QueryResult } from "pg";
import { errnoOf, JobError } from "../../base/errors.js";
import { quoteName } from "../../base/sql.js";
import type { NamedColumn } from "../../columns/types.js";
import { membersOf } from "../../columns/value-text.js";
import { type Contract, scoredColumns } from "../../models/binding/contract.js";
import type { Plan } from "../../run/plan/plan.js";
import type { FoundRow, KeyedRows } from "../target.js";
import { retriedRead, type TableTools } from "./modes/mode.js";
import { publishedRuns } from "./past-runs.js";
import { quoteTable, showTable } from "./table.js";

/**
 * As readers have it now. Rows of other runs than the plan's, in mode upsert of unpublished ones, of another table, and of
 * a key that comes twice count as missing.
 */
export async function openTableRows(tools: TableTools, plan: Plan, key: readonly string[]): Promise<KeyedRows> {
  const { name, spec, connections } = tools;
  const select = selectOf(quoteTable(name), key, plan.contract);
  const none = { own: undefined, runs: [] };
  const { own, runs } = await retriedRead(tools, `reading ${showTable(name)}`, none, async (session) => {
    await session.query(select([])); // no other table takes its place before the transaction ends
    const { rows } = await session.query<Pick<StoredRow, "id">>(
      `SELECT ${escapeLiteral(quoteTable(name))}::regclass::oid::text AS id`,
    );
    return { own: rows[0]?.id, runs: spec.mode === "upsert" ? await publishedRuns(session, tools) : [plan] };
  });
  const published = new Set<string>(runs.map(({ runId }) => runId));
  const read = async (keys: readonly string[]): Promise<readonly StoredRow[]> => {
    const text = `BEGIN READ ONLY; ${settings}; ${select(keys)}; COMMIT`; // one call, and nothing stays in a session
    const results = await connections.use(
      async (session) => (await session.query(text)) as unknown as readonly QueryResult<StoredRow>[],
      { silentSeconds: lookUpSeconds },
    );
    return results.at(-2)?.rows ?? [];
  };
  return {
    async lookUp(columns, rows) {
      const members = membersOf(columns);
      const keys = Array.from({ length: rows }, (_, row) => `{${members(row)}}`);
      const stored = await read(keys).catch((error: unknown) => {
        const code = errnoOf(error) ?? "";
        if (code.startsWith("22") && error instanceof DatabaseError) {
          const said = `no row can have such a key (${key.join(", ")}): ${error.message}`;
          throw new JobError("USAGE", said, { cause: error });
        }
        if (/^(55P03|57014|ETIMEDOUT)/.test(code)) {
          throw error; // it took too long already
        }
        return read(keys); // a connection may have died since it was used, or the table may have been swapped
      });
      const found: (FoundRow | undefined)[] = keys.map(() => undefined);
      const places = new Set<number>();
      for (const { place, row, id, run_id: runId, model_sha256: model } of stored) {
        if (runId === null ? id === own : published.has(runId)) {
          const of = { runId: runId ?? plan.runId, model: model ?? plan.model.sha256 };
          found[place - 1] = places.has(place) ? undefined : { members: row.slice(1, -1), ...of };
          places.add(place);
        }
      }
      return found;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

interface StoredRow {
  /** The number of its key, from 1. */
  readonly place: number;
  /** An object of JSON. */
  readonly row: string;
  /** The table that it is in, which has another id when another one takes its place. */
  readonly id: string;
  /** null without lineage. */
  readonly run_id: string | null;
  readonly model_sha256: string | null;
}

/** Makes statements that read the rows of some keys, objects of JSON. */
function selectOf(table: string, key: readonly string[], contract: Contract): (keys: readonly string[]) => string {
  const isSame = key.map((column) => `t.${quoteName(column)} = k.${quoteName(column)}`).join(" AND ");
  const shown = scoredColumns(contract)
    .map((column) => `${spelledSql(column)} AS ${quoteName(column.name)}`)
    .join(", ");
  const lineage =
    contract.lineage === true ? "t.run_id, t.model_sha256" : "NULL::text AS run_id, NULL::text AS model_sha256";
  return (
    keys,
  ) => `SELECT e.place::integer, t.tableoid::text AS id, ${lineage}, (SELECT row_to_json(r) FROM (SELECT ${shown}) r)::text AS row
    FROM jsonb_array_elements(${escapeLiteral(`[${keys.join(",")}]`)}::jsonb) WITH ORDINALITY AS e(key, place)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::${table}, e.key) AS k
    JOIN ${table} t ON ${isSame}`;
}

/** SQL of a value that `row_to_json` spells as `membersOf` does, also where the column is a wider one, JSON or a vector. */
function spelledSql({ name, type }: Omit<NamedColumn, "column">): string {
  const value = `t.${quoteName(name)}`;
  if (typeof type === "string") {
    return type === "float32" ? `${value}::real` : type === "utf8" ? `${value}::text` : value;
  }
  return type.kind === "decimal"
    ? `${value}::numeric(${type.precision},${type.scale})`
    : type.kind === "list"
      ? `trim(both '"' from to_json(${value})::text)::json`
      : value;
}

/** Seconds that a statement may take. */
const lookUpSeconds = 5;
/** A lock is waited for no longer: who alters a table may hold it for hours, and each statement that waits has a connection. */
const lockSeconds = 2;

const settings = `SET LOCAL statement_timeout = '${lookUpSeconds}s'; SET LOCAL lock_timeout = '${lockSeconds}s';
  SET LOCAL timezone = 'UTC'; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1`;
