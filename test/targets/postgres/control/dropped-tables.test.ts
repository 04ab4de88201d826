import { expect, test } from "vitest";
import type { JobError } from "#src/base/errors.js";
import { count, runOf } from "../../../support/pg-amid.js";
import type { Database } from "../../../support/pg-database.js";
import { usePostgres } from "../../../support/postgres.js";
import { begun, commitSpans, pgSink } from "../../../support/sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

const postgres = usePostgres();

/** Tables without which no run goes on; `rejects` and `swaps` are needed by those that reject rows, and by `replace`. */
const tables = ["version", "runs", "attempts", "spans", "finishes", "documents"];

async function carryOn(database: Database, spans = 99): Promise<JobError | undefined> {
  await using sink = pgSink({ url: database.url, postgres: { mode: "append" }, retrySeconds: 1 });
  try {
    const plan = stagedPlan(sink.planTarget, { rows: 40, runId: runOf(40) });
    const { stored, run } = await begun(sink, plan);
    await commitSpans(run, stored, (span) => span < spans);
    if (spans < 99) {
      return undefined;
    }
    await run.create(verdictDocument, verdictOf("publish"));
    await run.create(decisionDocument, decisionOf("approved", "checks"));
    await run.finish();
    return undefined;
  } catch (error) {
    return error as JobError;
  }
}

const damaged = { code: "OUTPUT_DAMAGED", exitCode: 66, hint: expect.stringContaining("from a backup") as string };

postgres.describe("a control table that is gone", () => {
  test.each(tables)(
    "without %s, the same command ends with 66, and starts over once the schema is gone",
    async (table) => {
      await using database = await postgres.server().createDatabase();
      const drop = `DROP TABLE infer_batch.${table} CASCADE`;
      expect(await carryOn(database, 2)).toBeUndefined();
      await database.query(drop);
      expect(await carryOn(database)).toMatchObject(damaged);
      expect(await carryOn(database)).toMatchObject(damaged);
      await database.query("DROP SCHEMA infer_batch CASCADE");
      expect(await carryOn(database)).toBeUndefined();
      expect(await count(database)).toBe(40);
      await database.query(drop);
      expect(await carryOn(database)).toMatchObject(damaged);
      expect(await count(database)).toBe(40);
    },
  );
});
