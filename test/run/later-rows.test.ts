import { join } from "node:path";
import { expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { shardJob } from "../support/shards.js";

/** More bytes of waiting rows than a thread holds: 24 MiB. */
const largeRows = 24_000;
const sizes = { a: 500, b: 500, c: largeRows, d: largeRows, e: largeRows };

test("rows that are due come, however full of later ones the threads are", { timeout: 60_000 }, async () => {
  const job = await shardJob(scratch.path, {}, { input: { path: "in/*.arrow" }, output: { columns: ["id", "label"] } });
  let from = 0;
  for (const [name, rows] of Object.entries(sizes)) {
    const ids = `SELECT range + ${from} AS id FROM range(${rows})`;
    const select = `SELECT id, CAST(id * 2 AS DOUBLE) AS x, repeat('x', 2000) AS label FROM (${ids})`;
    await writeArrow(join(scratch.path, "in", `${name}.arrow`), select, { batchRows: largeRows });
    from += rows;
  }

  await expectEnd(runHere(["run", job.spec]), 0);
  const rows = await outputRows(job.out);
  expect(rows).toHaveLength(from);
  expect(rows.every(({ id, score }, index) => Number(id) === index && score === index * 2)).toBe(true);
});
