import { expect, test } from "vitest";
import { keysIn, sinkAt, warningPlan } from "../../../support/pg-keys.js";
import { usePostgres } from "../../../support/postgres.js";
import { commitSealed, wholeSealed } from "../../../support/sealed-spans.js";
import { alone } from "../../../support/sink-drive.js";
import { begun } from "../../../support/sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";

const postgres = usePostgres();

postgres.describe("a lost key of a run in Postgres", () => {
  test.each([
    ["gone", (key: string) => `DROP TABLE ${key}`],
    ["empty", (key: string) => `DELETE FROM ${key}`],
  ])("a run that may be held ends before it is scored if its key is %s, and can be discarded", async (_how, sql) => {
    await using database = await postgres.server().createDatabase();
    await using sink = sinkAt(database.url).sink;
    const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSealed(run, stored, [0]);
    const [key = expect.fail("no key")] = await keysIn(database);
    await database.query(sql(key));
    const next = await sink.open(stored);
    await expect(next.begin(alone)).rejects.toMatchObject({
      code: "OUTPUT_DAMAGED",
      exitCode: 66,
      message: expect.stringContaining(`the key of its features, ${key}, is gone`),
      hint: "restore it, or score again with --new-run",
      damage: { runId: stored.plan.runId },
    });
    expect((await next.decide(decisionOf("discarded"))).kind).toBe("discarded");
    await next.tidy?.();
    expect(await keysIn(database)).toEqual([]);
  });

  test.each([
    ["lost before the rest is scored", [0]],
    ["lost when all is scored", [0, 1, 2]],
  ] as const)(
    "a run that cannot be held warns, and is published without features, if its key is %s",
    async (_when, spans) => {
      await using database = await postgres.server().createDatabase();
      await using opened = sinkAt(database.url);
      const { sink, warnings } = opened;
      const { run, stored } = await begun(sink, warningPlan(sink));
      await commitSealed(run, stored, spans);
      const [key = expect.fail("no key")] = await keysIn(database);
      await database.query(`DROP TABLE ${key}`);
      const next = await begun(sink, stored.plan);
      await commitSealed(next.run, stored, [0, 1, 2]);
      const { columns } = (await next.run.profile()).profile ?? expect.fail("no profile");
      expect(columns).toEqual(wholeSealed.columns);
      await next.run.finish();
      expect(warnings).toEqual([expect.stringMatching(`${key}, is gone.* published without their profiles`)]);
      const { published } = await (await sink.open(stored)).profile();
      expect([published?.rows, published?.features.size]).toEqual([25, 0]);
      expect(await keysIn(database)).toEqual([]);
    },
  );

  test("a run that cannot be held is published without features if its spans were sealed with another key", async () => {
    await using database = await postgres.server().createDatabase();
    await using opened = sinkAt(database.url);
    const { sink, warnings } = opened;
    const { run, stored } = await begun(sink, warningPlan(sink));
    await commitSealed(run, stored, [0, 1, 2]);
    const [key = expect.fail("no key")] = await keysIn(database);
    await database.query(`UPDATE ${key} SET key = repeat('A', 43) || '='`);
    await run.finish();
    expect(warnings).toEqual([expect.stringContaining("was sealed with another key")]);
    expect(await keysIn(database)).toEqual([]);
  });

  test.each([
    [
      "is gone",
      (key: string) => `DROP TABLE ${key}`,
      /^reading the profiles .* is gone or is another one; .* without their profiles$/,
    ],
    ["is another one", (key: string) => `UPDATE ${key} SET key = repeat('A', 43) || '='`, /sealed with another key/],
  ] as const)(
    "a held run whose key %s is refused until it is approved, and is then published without features, with one warning",
    async (_how, sql, warning) => {
      await using database = await postgres.server().createDatabase();
      await using opened = sinkAt(database.url);
      const { sink, warnings } = opened;
      const { run, stored } = await begun(sink, stagedPlan(sink.planTarget));
      await commitSealed(run, stored, [0, 1, 2]);
      await run.judge(verdictOf("hold"));
      const [key = expect.fail("no key")] = await keysIn(database);
      await database.query(sql(key));
      await expect(run.profile()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
      expect(warnings).toEqual([]);
      await run.decide(decisionOf("approved"));
      await run.finish();
      expect(warnings).toEqual([expect.stringMatching(warning)]);
      const { published } = await (await sink.open(stored)).profile();
      expect([published?.rows, published?.features.size]).toEqual([25, 0]);
      expect(await keysIn(database)).toEqual([]);
    },
  );
});
