import { fieldsOf } from "../../base/guards.js";
import { quoteName } from "../../base/sql.js";
import { jsonOf } from "../../columns/value-text.js";
import { scoredColumns } from "../../models/binding/contract.js";
import type { Plan } from "../../run/plan/plan.js";
import type { FoundRow, KeyedRows } from "../target.js";
import { retriedRead, type TableTools } from "./modes/mode.js";
import { publishedRuns } from "./past-runs.js";
import { quoteTable, showTable } from "./table.js";

/**
 * As readers have it now. Rows of unpublished runs, of a later table, and of a key that comes twice count as missing.
 */
export async function openTableRows(tools: TableTools, plan: Plan, key: readonly string[]): Promise<KeyedRows> {
  const { name, spec } = tools;
  const request = {
    key,
    columns: scoredColumns(plan.contract).map((column) => column.name),
    hasLineage: plan.contract.lineage === true,
  };
  const { table: own } = await readRows(tools, request, []);
  const runs =
    spec.mode === "append"
      ? [plan]
      : await retriedRead(tools, `reading ${showTable(name)}`, [], (session) => publishedRuns(session, tools));
  const published = new Set<string>(runs.map(({ runId }) => runId));
  return {
    async lookUp(keys, rows) {
      const texts = Array.from({ length: rows }, (_, row) => {
        const members = keys.map(
          (column) => `${JSON.stringify(column.name)}:${jsonOf(column.type, column.column, row)}`,
        );
        return `{${members.join(",")}}`;
      });
      const found: (FoundRow | undefined)[] = texts.map(() => undefined);
      const places = new Set<number>();
      for (const { place, row, table: inIt, runId, modelSha256 } of await rowsOf(tools, request, texts)) {
        if (runId === null ? inIt === own : published.has(runId)) {
          found[place] = places.has(place)
            ? undefined
            : { members: row.slice(1, -1), runId: runId ?? plan.runId, model: modelSha256 ?? plan.model.sha256 };
          places.add(place);
        }
      }
      return found;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

interface KeyRequest {
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** Whether rows have the columns of `output.lineage`. */
  readonly hasLineage: boolean;
}

/** Rows that were found by their keys. A table has another identity when another one takes its place. */
interface FoundByKey {
  /** The table that has the name now. */
  readonly table: string;
  readonly rows: readonly {
    /** Index of the key. */
    readonly place: number;
    readonly row: string;
    readonly table: string;
    /** null without lineage. */
    readonly runId: string | null;
    readonly modelSha256: string | null;
  }[];
}

interface StoredRow {
  /** null: no row was found. */
  readonly place: string | null;
  readonly row: string | null;
  readonly row_table: string | null;
  readonly run_id: string | null;
  readonly model_sha256: string | null;
  readonly table_now: string | null;
}

/** A value that no column of the table can have is the key of no row, and keeps no other key from being found. */
async function rowsOf(tools: TableTools, request: KeyRequest, keys: readonly string[]): Promise<FoundByKey["rows"]> {
  try {
    return (await readRows(tools, request, keys)).rows;
  } catch (error) {
    if (!isNoValue(error)) {
      throw error;
    }
    const half = Math.floor(keys.length / 2);
    const first = half === 0 ? [] : await rowsOf(tools, request, keys.slice(0, half));
    const others = half === 0 ? [] : await rowsOf(tools, request, keys.slice(half));
    return [...first, ...others.map((row) => Object.assign({}, row, { place: half + row.place }))];
  }
}

function isNoValue(error: unknown): boolean {
  return String(fieldsOf(error)["code"]).startsWith("22");
}

/** Reads the rows of some keys, objects of JSON, in one statement. @throws errors of the driver: who asks waits for the answer */
async function readRows(
  { name, connections }: TableTools,
  { key, columns, hasLineage }: KeyRequest,
  keys: readonly string[],
): Promise<FoundByKey> {
  const table = quoteTable(name);
  const isSame = key.map((column) => `t.${quoteName(column)} = k.${quoteName(column)}`).join(" AND ");
  const shown = columns.map((column) => `t.${quoteName(column)}`).join(", ");
  const lineage = hasLineage ? "t.run_id, t.model_sha256" : "NULL::text AS run_id, NULL::text AS model_sha256";
  // The outer join has the table's identity where no key is found, too.
  const text = `SELECT f.*, now.id AS table_now FROM (SELECT to_regclass($2)::oid::text AS id) now LEFT JOIN (
    SELECT e.place::text, t.tableoid::text AS row_table, ${lineage}, (SELECT row_to_json(r) FROM (SELECT ${shown}) r)::text AS row
    FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS e(key, place)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::${table}, e.key) AS k
    JOIN ${table} t ON ${isSame}) f ON true`;
  const query = { text, values: [`[${keys.join(",")}]`, table] };
  const read = (): Promise<StoredRow[]> =>
    connections.use(async (session) => (await session.query<StoredRow>(query)).rows, { silentSeconds: lookUpSeconds });
  // A connection may have died since it was used, or the table may have been swapped.
  const rows = await read().catch((error: unknown) => (isNoValue(error) ? Promise.reject(error as Error) : read()));
  return {
    table: rows[0]?.table_now ?? showTable(name),
    rows: rows.flatMap(({ place, row, row_table: inTable, run_id: runId, model_sha256: modelSha256 }) =>
      place === null || row === null || inTable === null
        ? []
        : [{ place: Number(place) - 1, row, table: inTable, runId, modelSha256 }],
    ),
  };
}

/** Seconds without an answer after which a connection is given up. */
const lookUpSeconds = 5;
