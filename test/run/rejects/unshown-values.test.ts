import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { identity, smallJob } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";
import { longBytes, replaceBytes } from "../../support/parquet-patches.js";
import { reject, rejectLines } from "../../support/rejects.js";
import { scoreHere } from "../../support/score.js";

const plain = "COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 0";

describe("a value that DuckDB cannot show does not hide a bad row", () => {
  const marker = 1_234_605_616_436_508_552n;

  /** The only row has `value` in `v`, as `type`, and NaN as its feature. */
  async function badRow(folder: string, value: bigint, wrap: string, type: string): Promise<string> {
    const { spec } = await smallJob(folder, {
      ...reject,
      model: identity,
      select: "SELECT 1",
      output: { columns: ["v"], parquet: { path: "out" } },
    });
    const path = join(folder, "in/a.parquet");
    await writeRows(path, `SELECT 'nan'::DOUBLE AS x, ${wrap} AS v FROM (SELECT ${type} AS t)`, plain);
    await replaceBytes(
      path,
      longBytes(marker % (type.startsWith("TIME ") ? 86_400_000_000n : 2n ** 63n)),
      longBytes(value),
    );
    return spec;
  }

  const moment = `make_timestamp(${marker})`;
  const time = `TIME '00:00:00' + to_microseconds(${marker % 86_400_000_000n})`;

  test.each([
    { name: "NaT", value: -(2n ** 63n), wrap: "t", type: moment, shown: "-290308-12-21T19:59:05.224192" },
    {
      name: "NaT in a list",
      value: -(2n ** 63n),
      wrap: "[t]",
      type: moment,
      shown: '["-290308-12-21T19:59:05.224192"]',
    },
    { name: "NaT in a struct", value: -(2n ** 63n), wrap: "{'f': t}", type: moment, shown: "-290308-12-21" },
    { name: "a time below 0", value: -1_000_000n, wrap: "t", type: time, shown: "-1000000 microseconds" },
    { name: "a time below 0 in a list", value: -1_000_000n, wrap: "[t]", type: time, shown: "-1000000 microseconds" },
  ])("$name", async ({ value, wrap, type, shown }) => {
    const spec = await badRow(scratch.path, value, wrap, type);

    expect(await scoreHere(spec)).toMatchObject({ rowsScored: 0, rowsRejected: 1 });

    expect(await rejectLines(join(scratch.path, "out"))).toMatchObject([
      { column: "x", reason: "not_finite", columns: { v: expect.stringContaining(shown) as string } },
    ]);
  });
});
