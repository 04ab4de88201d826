import { join } from "node:path";
import { expect, test } from "vitest";
import type { Projection } from "#src/models/binding/contract.js";
import { openArrowDecoder } from "#src/formats/arrow/decoder.js";
import { openShards } from "#src/formats/arrow/shards.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import type { Decoder, SliceRequest } from "#src/formats/format.js";
import { ref } from "../support/batches.js";
import { writeArrow } from "../support/arrow.js";
import { scratch } from "../support/job.js";
import { query, writeRows } from "../support/parquet.js";

const rows = 5000;
/** `n` is NULL in some rows; a cast of `t` fails in others. */
const select = `SELECT range AS id, CASE WHEN range % 7 = 0 THEN NULL ELSE range % 100 END AS n,
  CASE WHEN range % 11 = 0 THEN 'x' ELSE (range % 50)::VARCHAR END AS t FROM range(${rows})`;

function filteredBy(text: string, uses: readonly string[]): Projection {
  const folders = uses.includes("dt") ? [{ ...ref("dt", "utf8"), partition: true as const }] : [];
  const expressions = { list: [{ kind: "where" as const, name: "input.where", text, uses }], folders };
  return { inputs: [], passthrough: [], expressions, cast: "exact", missing: "bad_row" };
}

/** Counts rows as runs see them: what a decoder reads of the slices, without those on which the filter fails. */
async function readKept(decoder: Decoder, slices: readonly SliceRequest[]): Promise<number> {
  let kept = 0;
  for await (const { rowCount, selection } of decoder.read(slices)) {
    kept += rowCount - (selection?.failed.length ?? 0);
  }
  return kept;
}

const filters: readonly (readonly [string, readonly string[]])[] = [
  ["n < 30", ["n"]],
  ["t::int < 20", ["t"]],
  ["n < 30 or t::int < 20 -- a comment", ["n", "t"]],
  ["dt = 'b' and id >= 100", ["dt", "id"]],
  ["dt = 'a'", ["dt"]],
  ["true", []],
];

test.each(["parquet", "arrow"] as const)(
  "the rows that a filter keeps are counted in %s as they are read",
  async (format) => {
    const paths = ["one", "other"].map((name) => join(scratch.path, `${name}.${format}`));
    for (const path of paths) {
      await (format === "parquet"
        ? writeRows(path, select, "ROW_GROUP_SIZE 2048")
        : writeArrow(path, select, { batchRows: 2000 }));
    }
    await using decoder =
      format === "parquet"
        ? openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" })
        : openArrowDecoder({ timezone: "UTC", open: openShards() });
    for (const [where, uses] of filters) {
      const slices = paths.map((path): SliceRequest => {
        const partitions = new Map([["dt", "b"]]);
        return {
          file: { path, name: path },
          rowStart: 0,
          rowEnd: rows,
          projection: filteredBy(where, uses),
          partitions,
        };
      });
      const [first] = slices;
      const parts = first === undefined ? [] : [{ ...first, rowStart: 700, rowEnd: 3100 }];
      const all = await keptIn(where, "true");
      expect(await decoder.countKept(slices), where).toBe(all * 2);
      expect(await decoder.countKept(parts), where).toBe(await keptIn(where, "id >= 700 AND id < 3100"));
      expect(await readKept(decoder, slices), where).toBe(all * 2);
    }
    expect(await decoder.countKept([])).toBe(0);
  },
);

/** Counts rows of the table that a filter keeps, by a DuckDB of the test's own. */
async function keptIn(where: string, condition: string): Promise<number> {
  const table = `(SELECT *, 'b' AS dt FROM (${select}))`;
  const [row] = await query(
    `SELECT count(*)::INTEGER AS kept FROM ${table} WHERE (TRY(${where}\n)) IS TRUE AND ${condition}`,
  );
  return Number(row?.["kept"]);
}
