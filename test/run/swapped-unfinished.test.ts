import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();

postgres.describe("an unfinished run whose rows another run has replaced", () => {
  test.each(
    firstOf([
      ["append", []],
      ["upsert", ["id"]],
    ] as const),
  )("the warning about it says so, and names a command that works: %s", async (mode, key) => {
    await using database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode, key };
    const nights = await nightlyJob(scratch.path, {
      checks: undefined,
      output: { parquet: undefined, postgres: table },
    });
    await expectEnd(nights.night("run", "2026-11-20", "--worker", "0/2"), 0);
    const before = await nights.night("status", "2026-11-21");
    expect(before.stdout).toMatch(
      / is not finished; to finish it: infer-batch run \S+ --param ds=2026-11-20( \(with --allow-older, once .*\))?\n$/,
    );

    await nights.rewrite({
      name: "other",
      output: { parquet: undefined, postgres: { ...table, mode: "replace", key: ["id"] } },
    });
    await expectEnd(nights.night("run", "2026-11-19"), 0);
    await nights.rewrite({});
    await expectEnd(nights.night("run", "2026-11-20"), 66);

    const { stdout } = await nights.night("status", "2026-11-21");
    const text = /( is not finished, .*); to score it again: infer-batch (.*?)( \(with --allow-older, once .*\))?$/m;
    const [said = "", why, early = ""] = text.exec(stdout) ?? [];
    expect(why, stdout).toMatch(
      /^ is not finished, and its rows there are gone: run other-\S+ has replaced all rows since$/,
    );
    const { stderr } = await nights.night("run", "2026-11-21", "--worker", "0/2");
    expect(stderr).toContain(said);
    const { unfinished } = lastJson(await nights.night("status", "2026-11-22", "--json"));
    expect(unfinished).toMatchObject([{ command: `infer-batch ${early}` }, {}]);
    await expectEnd(runHere([...early.split(" "), ...(mode === "append" ? [] : ["--allow-older"])]), 0);
    expect((await nights.night("status", "2026-11-21")).stdout).not.toContain("2026-11-20");
  });
});
