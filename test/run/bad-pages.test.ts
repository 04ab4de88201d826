import { rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { outputRows, partNames } from "../support/output.js";
import { patch, shardJob } from "../support/shards.js";
import { shownCli } from "../support/shown.js";
import { plannedTime } from "../support/world.js";

const laterTime = new Date("2026-01-02");

describe("a shard whose pages are damaged", () => {
  const damages = [
    { what: "a compressed page", column: "s", from: 21_000, group: 2, parts: 8 },
    { what: "a page of a column without NULLs", column: "id", from: 7906, group: 1, parts: 7 },
    { what: "the header of a page", column: "s", from: 13_022, group: 1, parts: 7 },
  ] as const;

  test.each(damages)(
    "($what) ends the run when all spans before its row group are committed",
    async ({ column, from, group, parts }) => {
      const job = await shardJob(scratch.path, { a: "plain", b: "plain", c: "plain" }, { commit_rows: 400 });
      const whole = await patch(job.shard("c"), (bytes) => bytes.fill(0xa5, from, from + 40));

      const said = await shownCli(["run", job.spec, "--quiet"], scratch.path);

      const rows = `rows ${group * 400} to ${group * 400 + 399}`;
      expect(said).toContain(`reading <folder>/in/c.parquet: row group ${group} (${rows}), column \`${column}\`: `);
      expect(said.replaceAll(/`: .*/g, "`: <DuckDB's words>")).toMatchSnapshot();
      expect((await partNames(job.out)).length).toBe(parts);

      // The same bytes with the same size and time are the planned file again.
      await writeFile(job.shard("c"), whole);
      await utimes(job.shard("c"), plannedTime, plannedTime);
      expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
      const found = await outputRows(job.out);
      expect(found.length).toBe(3600);
      expect(found.slice(2400)).toEqual(found.slice(0, 1200));
    },
  );

  test("a shard whose pages were damaged is refused with 66 if another file than the planned one takes its place", async () => {
    const job = await shardJob(scratch.path, { a: "plain", b: "plain" }, { commit_rows: 400 });
    const whole = await patch(job.shard("b"), (bytes) => bytes.fill(0xa5, 21_000, 21_040));
    await shownCli(["run", job.spec, "--quiet"], scratch.path);
    await writeFile(job.shard("b"), whole);
    await utimes(job.shard("b"), laterTime, laterTime);

    expect(`\n${await shownCli(["run", job.spec, "--quiet"], scratch.path)}`).toMatchInlineSnapshot(`
      "
      exit 66
      --- stderr
      error: comparing the input with the plan of this unfinished run: changed since it was planned: in/b.parquet (it has the planned 25622 bytes, but was modified 2026-01-02T00:00:00Z, planned 2026-01-01T00:00:00Z)
        hint: restore the planned file with its modification time (cp -p), and run again
          if its content has not changed, set its planned time again: touch -c -d 2026-01-01T00:00:00Z <folder>/in/b.parquet
          to abandon this run, and score with the current input, model and spec: infer-batch run <folder>/job.yaml --new-run
      "
    `);
    expect((await partNames(job.out)).length).toBe(5);
  });

  test("a damaged page without a checksum may change a value unnoticed, and input.verify: full finds it in a later attempt", async () => {
    const job = await shardJob(scratch.path, { a: "plain" }, { commit_rows: 400, input: { verify: "full" } });
    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
    await rm(join(job.out, "_SUCCESS"));
    await rm(join(job.out, "_manifest.json"));
    await rm(join(job.out, (await partNames(job.out))[2] ?? ""));
    // Inside a plain page of doubles.
    await patch(job.shard("a"), (bytes) => bytes.fill(0, 17_000, 17_002));

    const said = await shownCli(["run", job.spec, "--quiet"], scratch.path);
    expect(`\n${said}`).toMatchInlineSnapshot(`
      "
      exit 66
      --- stderr
      error: reading <folder>/in/a.parquet: its sha256 is <sha256>, planned <sha256>
        hint: its bytes changed though its size and time did not: restore the planned file; committed spans are kept
      "
    `);

    await job.rewrite({ commit_rows: 400 });
    expect(await shownCli(["run", job.spec, "--quiet"], scratch.path)).toBe("exit 0\n");
  });
});
