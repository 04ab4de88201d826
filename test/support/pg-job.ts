import { writeSpec, type Fixture, type SpecOverrides } from "./job.js";
import { differences, goldenRows } from "./golden.js";
import type { Database, PgRow } from "./pg-database.js";

export async function writePgSpec(
  folder: string,
  fixture: Fixture,
  database: Pick<Database, "url">,
  {
    output,
    ...overrides
  }: Omit<SpecOverrides, "output"> & {
    readonly output?: { readonly postgres?: object; readonly [key: string]: unknown };
  } = {},
): Promise<string> {
  const { postgres, ...rest } = output ?? {};
  return await writeSpec(folder, fixture, {
    ...overrides,
    output: {
      parquet: undefined,
      ...rest,
      postgres: { url: database.url, table: "scores.predictions", timeouts: { lock: 1 }, ...postgres },
    },
  });
}

/** The table's rows by key, each once, are what Python predicted. Empty when nothing differs. */
export async function tableFaults(
  database: Database,
  fixture: Fixture,
  table = "scores.predictions",
): Promise<string[]> {
  const key = fixture.key ?? "id";
  const golden = await goldenRows(fixture);
  const rows = await database.query(`SELECT * FROM ${table}`);
  return differences(rows.map(fromPg).toSorted(byKey(key)), golden.toSorted(byKey(key)));
}

/** int8 comes as text, and DuckDB gives bigint. */
function fromPg(row: PgRow): PgRow {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      typeof value === "string" && /^-?\d+$/.test(value) ? BigInt(value) : value,
    ]),
  );
}

function byKey(key: string): (one: PgRow, other: PgRow) => number {
  return (one, other) => (String(one[key]) < String(other[key]) ? -1 : 1);
}
