import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { query } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";

const jobOver = async (folder: string, input = {}): ReturnType<typeof smallJob> =>
  await smallJob(folder, {
    model: identity,
    select: "SELECT 1",
    input: { path: "in/*.arrow", ...input },
    output: { columns: ["id", "note"], parquet: { path: "out" } },
  });

describe("a column that has NULLs only in a shard", () => {
  const nulls = "SELECT i::BIGINT AS id, i / 8 AS x, NULL AS note FROM range(5) t(i)";
  const typed = "SELECT i::BIGINT AS id, i / 8 AS x, 'n' || i AS note FROM range(5, 10) t(i)";

  test.each(["a", "z"])(
    "a column that has NULLs only in a shard has the type of the other shards, in any order (%s)",
    async (name) => {
      const job = await jobOver(scratch.path);
      await writeArrow(join(scratch.path, "in/b.arrow"), typed);
      await writeArrow(join(scratch.path, `in/${name}.arrow`), nulls, { nulls: ["note"] });

      await scoreHere(job.spec);

      const rows = await query(`SELECT id::INTEGER AS id, note FROM '${job.out}/*.parquet' ORDER BY id`);
      expect(rows.map(({ note }) => note)).toEqual([null, null, null, null, null, "n5", "n6", "n7", "n8", "n9"]);
    },
  );

  test("a column that has NULLs only in a shard is refused if an expression depends on its type", async () => {
    const job = await jobOver(scratch.path, { where: "note <> 'n7'" });
    await writeArrow(join(scratch.path, "in/b.arrow"), typed);
    await writeArrow(join(scratch.path, "in/c.arrow"), nulls, { nulls: ["note"] });

    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /^65 SCHEMA_MISMATCH\nplanning: column `note` is null in .*c\.arrow, but utf8 in .*b\.arrow/,
    );
  });

  test("a column that has only NULLs is refused if no shard has a type for it", async () => {
    const job = await jobOver(scratch.path);
    await writeArrow(join(scratch.path, "in/c.arrow"), nulls, { nulls: ["note"] });

    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /^64 CONTRACT\n.*`note`, which has NULLs only, and a type in no shard/,
    );
  });

  test("expressions take it as a text that is NULL if no shard has a type for it", async () => {
    const job = await jobOver(scratch.path);
    const columns = { note: "coalesce(none::DOUBLE, id)", kind: "coalesce(none, 'none')" };
    await writeArrow(join(scratch.path, "in/c.arrow"), nulls.replace("note", "none"), { nulls: ["none"] });
    await job.rewrite({
      input: { path: "in/*.arrow", columns },
      output: { columns: ["id", "note", "kind"], parquet: { path: "out" } },
    });

    await scoreHere(job.spec);

    const rows = await query(`SELECT DISTINCT note = id AS same, kind FROM '${job.out}/*.parquet'`);
    expect(rows).toEqual([{ same: true, kind: "none" }]);
  });
});
