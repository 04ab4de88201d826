import { Client, DatabaseError, type QueryResult } from "pg";

/** A row as `pg` gives it: int8 and numeric as text. */
export type PgRow = Readonly<Record<string, unknown>>;

/** A database of its own, with a connection of its own. */
export interface Database extends AsyncDisposable {
  readonly name: string;
  readonly url: string;
  /** One or several statements; the rows of the last. */
  query(sql: string, values?: readonly unknown[]): Promise<PgRow[]>;
}

export async function connect(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  client.on("error", () => undefined); // the server may be killed under it
  await client.connect();
  return client;
}

/** Drops all that is in it, and ends all who are. */
export async function emptyDatabase(url: string): Promise<void> {
  const client = await connect(url);
  try {
    await client.query(`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
      DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' LOOP
          EXECUTE format('DROP SCHEMA %I CASCADE', name);
        END LOOP;
        CREATE SCHEMA public;
      END $$`);
  } finally {
    await client.end();
  }
}

export function databaseOf(name: string, url: string): Database {
  let client: Client | undefined;
  return {
    name,
    url,
    async query(sql, values) {
      try {
        client ??= await connect(url);
        const result: unknown = await client.query(sql, values === undefined ? undefined : [...values]);
        const last: unknown = Array.isArray(result) ? result.at(-1) : result;
        return (last as QueryResult<PgRow>).rows;
      } catch (error) {
        if (error instanceof DatabaseError) {
          throw error;
        }
        client = undefined; // the connection is gone, not the database
        throw error;
      }
    },
    async [Symbol.asyncDispose]() {
      await client?.end().catch(() => undefined);
    },
  };
}
