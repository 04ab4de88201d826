import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fixtureAsArrow } from "../support/arrow.js";
import { projectFolder } from "../support/cli.js";
import { identity } from "../support/faulty.js";
import { fixtures, scratch } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { query } from "../support/parquet.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";
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
