import { expect, test } from "vitest";
import { refusalOf } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { reject } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { faultsOf, textJob } from "../support/text-job.js";

const postgres = usePostgres();

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
