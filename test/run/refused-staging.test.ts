import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { nightlyJob } from "../support/nights.js";
import { leftTables } from "../support/pg-crash.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const modes = ["append", "upsert", "replace"] as const;

postgres.describe("a run into Postgres that its table refuses", () => {
  test.each(
    firstOf([...modes.map((mode) => ({ mode, checks: {} })), { mode: "replace", checks: undefined }] as const, 2),
  )(
    "a run that its table refuses continues once the constraint is dropped, and its errors name commands that work: $mode, $checks",
    async (one) => {
      await using database = await postgres.server().createDatabase();
      const key = one.mode === "append" ? [] : ["id"];
      const table = { url: database.url, table: "scores.predictions", mode: one.mode, key, timeouts: { lock: 1 } };
      const nights = await nightlyJob(scratch.path, {
        checks: one.checks,
        output: { parquet: undefined, postgres: table },
      });
      await database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real);
      ALTER TABLE scores.predictions ADD CONSTRAINT most CHECK (id <> 150)`);
      for (const args of [[], ["--new-run"]]) {
        await expectEnd(
          nights.night("run", "2026-11-20", ...args),
          65,
          /violates check constraint[^]*hint: correct the input or the table; committed spans/,
        );
      }
      if (one.checks === undefined) {
        await expectEnd(
          nights.night("discard", "2026-11-20"),
          64,
          /it is not staged, so it is published when it is complete\n {2}hint: infer-batch run .* finishes it; runs that are planned with/,
        );
      }
      await database.query("ALTER TABLE scores.predictions DROP CONSTRAINT most");
      await expectEnd(nights.night("run", "2026-11-20"), 0);
      expect(await database.query("SELECT count(*)::int AS n FROM scores.predictions")).toEqual([{ n: 442 }]);
      await writeFile(join(scratch.path, "keys.txt"), "150\n");
      await expectEnd(runHere(["erase", nights.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]), 0);
      expect(await leftTables(database)).toEqual([]);
    },
  );
});
