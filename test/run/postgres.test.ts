import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fixtureAsArrow } from "../support/arrow.js";
import { expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { identity, refusalOf } from "../support/faulty.js";
import { fixtures, scratch, scratchFolder } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { query } from "../support/parquet.js";
import { expectFinishedPg, type Mode, pgJob } from "../support/pg-crash.js";
import { connect, type Database } from "../support/pg-database.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { findPgBouncer, startPgBouncer } from "../support/pgbouncer.js";
import { usePostgres } from "../support/postgres.js";
import { reject } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { faultsOf, textJob } from "../support/text-job.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();

postgres.describe("a run into Postgres", () => {
  test.each(fixtures)("$name: every row once, as Python predicts", async (fixture) => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, { commit_rows: 100 });

    const report = await scoreHere(spec);

    expect(report).toMatchObject({ status: "complete", rowsScored: fixture.rows });
    expect(await tableFaults(database, fixture)).toEqual([]);
    expect(await scoreHere(spec)).toMatchObject({ status: "already_complete", rowsScored: 0 });
    expect(await tableFaults(database, fixture)).toEqual([]);
    const [progress] = await database.query("SELECT * FROM infer_batch.progress");
    expect(progress).toMatchObject({ status: "complete", rows_committed: String(fixture.rows), last_error: null });
  });

  test("from Arrow shards: what Python predicts, and each type as from Parquet", async () => {
    await using database = await postgres.server().createDatabase();
    const fixture = fixtureNamed("penguins-pipeline");
    await mkdir(join(scratch.path, "in"));
    await fixtureAsArrow(join(scratch.path, "in"), fixture.table, "stream");
    await writeModel(join(scratch.path, "identity.onnx"), identity);
    const files = join(projectFolder, "fixtures/arrow");
    const described = await query(`DESCRIBE SELECT * FROM '${join(files, "types.parquet")}'`);
    const typed = async (name: string): Promise<void> => {
      await scoreHere(
        await writePgSpec(scratch.path, { ...fixture, name: "typed", outputs: { score: "score" } }, database, {
          params: { file: name },
          input: { path: join(files, name) },
          model: { path: "identity.onnx", inputs: { x: ["id"] } },
          output: {
            columns: described.map((row) => String(row["column_name"])),
            postgres: { table: `scores.${name.replace(".", "_")}` },
          },
        }),
      );
    };

    await scoreHere(
      await writePgSpec(scratch.path, fixture, database, { input: { path: "in/*.arrows" }, commit_rows: 100 }),
    );
    await typed("types.parquet");
    await typed("zstd.arrows");

    expect(await tableFaults(database, fixture)).toEqual([]);
    const [types] = await database.query(
      `SELECT count(*)::int AS rows, count(*) FILTER (WHERE to_jsonb(a) = to_jsonb(b))::int AS same
        FROM scores.types_parquet a FULL JOIN scores.zstd_arrows b USING (id)`,
    );
    expect(types).toEqual({ rows: 60, same: 60 });
  });
});

const program = findPgBouncer();
if (program === undefined) {
  console.warn("SKIPPED, no PgBouncer: install it (Debian: apt-get install pgbouncer)");
}

/** Fewer than the connections that one attempt has. */
const sessions = 2;
const names = program === undefined ? "(no pgbouncer on this machine)" : "";

/** State of a session that a pooler would hand on to its next client. */
const sessionState = `
  SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS lock,
    current_setting('statement_timeout') AS statement, current_setting('idle_in_transaction_session_timeout') AS idle,
    (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
    (SELECT count(*)::int FROM pg_prepared_statements) AS statements,
    (SELECT count(*)::int FROM pg_class WHERE relpersistence = 't') AS tables`;
const untouched = { path: '"$user", public', lock: "0", statement: "0", idle: "0", locks: 0, statements: 0, tables: 0 };

(program === undefined ? describe.skip : postgres.describe)(`behind PgBouncer in transaction mode ${names}`, () => {
  const cases = (["append", "upsert", "replace"] as const).flatMap((mode) => [
    { mode, what: "without checks", checks: undefined },
    { mode, what: "staged", checks: {} },
  ]);

  test.each<{ mode: Mode; what: string; checks: object | undefined }>(cases)(
    "two attempts on one run share its sessions, score every row once, and leave nothing in them: $mode, $what",
    async ({ mode, checks }) => {
      await using ownFolder = await scratchFolder();
      await using database = await postgres.server().createDatabase();
      await using pooler = await startPgBouncer(program ?? "", postgres.server().port, sessions);
      const url = pooler.through(database.url);
      const job = await pgJob(ownFolder.path, database, mode, { url, checks });
      const results = await Promise.all([1, 2].map(() => runCli(["run", job.spec, "--no-progress"])));
      expect(results.map(({ code, stderr }) => (code === 0 ? 0 : stderr))).toEqual([0, 0]);
      await expectFinishedPg(job);
      if (mode === "replace") {
        expect((await expectEnd(runCli(["status", job.spec]), 0)).stdout).toContain("published");
        await expectEnd(runCli(["rollback", job.spec]), 0);
        expect(await database.query("SELECT id FROM scores.predictions")).toEqual([{ id: "-1" }]);
      }
      // Both sessions at once, each held by a transaction.
      const others = await Promise.all(Array.from({ length: sessions }, () => connect(url)));
      for (const other of others) {
        await other.query("BEGIN");
      }
      const left = await Promise.all(others.map(async (other) => (await other.query(sessionState)).rows[0] as unknown));
      expect(left).toEqual(left.map(() => untouched));
      await Promise.all(others.map((other) => other.end()));
      // It was a pooler that they talked to, and it did share.
      const admin = await connect(url.replace(/\/[^/]*$/, "/pgbouncer"));
      const pools: unknown = (await admin.query("SHOW POOLS")).rows;
      await admin.end();
      expect(pools).toContainEqual(expect.objectContaining({ database: database.name, pool_mode: "transaction" }));
    },
  );
});

/** A type `vector(n)` whose values are the bytes that COPY sends, for servers without pgvector. */
async function createVectorType(database: Database): Promise<void> {
  await database.query(`CREATE TYPE vector;
    CREATE FUNCTION vector_in(cstring) RETURNS vector AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
    CREATE FUNCTION vector_out(vector) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
    CREATE FUNCTION vector_recv(internal) RETURNS vector AS 'bytearecv' LANGUAGE internal IMMUTABLE STRICT;
    CREATE FUNCTION vector_send(vector) RETURNS bytea AS 'byteasend' LANGUAGE internal IMMUTABLE STRICT;
    CREATE FUNCTION vector_typmod_in(cstring[]) RETURNS integer AS 'bittypmodin' LANGUAGE internal IMMUTABLE STRICT;
    CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, RECEIVE = vector_recv, SEND = vector_send,
      TYPMOD_IN = vector_typmod_in, INTERNALLENGTH = VARIABLE);
    CREATE CAST (vector AS bytea) WITHOUT FUNCTION;
    CREATE SCHEMA scores`);
}

/** The elements of a value in pgvector's binary form: int16 dimensions, int16 zero, a float32 each. */
function elementsOf(bytes: Buffer): number[] {
  expect([bytes.length, bytes.readInt16BE(2)]).toEqual([4 + 4 * bytes.readInt16BE(0), 0]);
  return Array.from({ length: bytes.readInt16BE(0) }, (_, index) => bytes.readFloatBE(4 + 4 * index));
}

const into = ({ url }: Database, table: string): object => ({
  output: { columns: ["id"], parquet: undefined, postgres: { url, table } },
});

postgres.describe("a column of pgvector's type", () => {
  test("lists of float32 are written to a vector of their length, or of any length", async () => {
    await using database = await postgres.server().createDatabase();
    await createVectorType(database);
    await database.query(`CREATE TABLE scores.fixed (id bigint, embedding vector(16));
      CREATE TABLE scores.free (id bigint, embedding vector)`);
    for (const table of ["fixed", "free"]) {
      const { spec } = await textJob(scratch.path, { name: table, ...into(database, `scores.${table}`) });
      expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsScored: 330 });
      const rows = await database.query(`SELECT id, embedding::bytea FROM scores.${table} ORDER BY id`);
      expect(
        await faultsOf(rows.map(({ id, embedding }) => ({ id, embedding: elementsOf(embedding as Buffer) }))),
      ).toEqual([]);
    }
  });

  test("lists of another length than the vector's are bad rows, and other types with the name are refused", async () => {
    await using database = await postgres.server().createDatabase();
    await createVectorType(database);
    await database.query(`CREATE TABLE scores.short (id bigint, embedding vector(8));
      CREATE SCHEMA other; CREATE TYPE other.vector;
      CREATE FUNCTION other.read(cstring) RETURNS other.vector AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
      CREATE FUNCTION other.show(other.vector) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
      CREATE FUNCTION other.take(internal) RETURNS other.vector AS 'bytearecv' LANGUAGE internal IMMUTABLE STRICT;
      CREATE TYPE other.vector (INPUT = other.read, OUTPUT = other.show, RECEIVE = other.take, INTERNALLENGTH = VARIABLE);
      CREATE TABLE scores.other (id bigint, embedding other.vector);
      CREATE TABLE scores.many (id bigint, embedding vector(16)[])`);
    const short = await textJob(scratch.path, { name: "short", ...into(database, "scores.short") });
    expect(await refusalOf(scoreHere(short.spec))).toContain("a list of 16 numbers, where the table's vector has 8");
    await short.rewrite({ name: "rejecting", ...reject, ...into(database, "scores.short") });
    expect(await scoreHere(short.spec)).toMatchObject({ status: "complete", rowsScored: 0, rowsRejected: 330 });
    for (const table of ["other", "many"]) {
      await short.rewrite({ name: table, ...into(database, `scores.${table}`) });
      expect(await refusalOf(scoreHere(short.spec))).toMatch(
        /embedding list<float32> +embedding \S+ +does not fit: real\[\] would/,
      );
    }
  });
});

const tlsServer = usePostgres({ tls: true });
const fixture = fixtureNamed("diabetes-mlp");

tlsServer.describe("a server that speaks TLS", () => {
  test.each([
    ["is believed when the authority is known and the name is right", "localhost", true, "verify-full", 0, ""],
    ["is not believed when the authority is not known", "localhost", false, "verify-full", 64, "certificate"],
    ["is not believed under another name", "127.0.0.1", true, "verify-full", 64, "certificate"],
    ["is believed unseen where the spec says require", "127.0.0.1", false, "require", 0, ""],
  ] as const)("%s", async (_what, host, known, tls, exit, said) => {
    await using ownFolder = await scratchFolder();
    await using database = await tlsServer.server().createDatabase();
    const url = database.url.replace("127.0.0.1", host);
    const spec = await writePgSpec(ownFolder.path, fixture, { url }, { output: { postgres: { tls } } });
    const env: Record<string, string> = known ? { PGSSLROOTCERT: tlsServer.server().certificate } : {};
    await expectEnd(runHere(["run", spec, "--no-progress"], { env }), exit, said);
  });
});
