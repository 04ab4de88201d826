import type { FoundByKey, KeyRequest } from "../target.js";
import type { RunTools } from "./modes/mode.js";
import { quoteName, quoteTable, showTable } from "./table.js";

interface FoundRow {
  /** null: no row was found. */
  readonly place: string | null;
  readonly row: string | null;
  readonly row_table: string | null;
  readonly run_id: string | null;
  readonly model_sha256: string | null;
  readonly table_now: string | null;
}

/** Reads the rows of some keys in one statement. @throws errors of the driver: who asks waits for the answer */
export async function lookUpRows(
  { name, connections }: RunTools,
  { key, keys, columns, hasLineage }: KeyRequest,
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
  const read = (): Promise<FoundRow[]> =>
    connections.use(async (session) => (await session.query<FoundRow>(query)).rows, { silentSeconds: lookUpSeconds });
  const rows = await read().catch(read); // a connection may have died since it was used, or the table may have been swapped
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
