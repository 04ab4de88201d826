import { rename } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import type { Listing } from "#src/sources/source.js";
import { growingLake, lakeKinds, missing, skipped } from "../support/lake-writers.js";
import { scratch } from "../support/job.js";
import { diskTable } from "../support/lakes.js";
import { query } from "../support/parquet.js";

async function changes(
  table: string,
  from: string | null,
  { onRewrite = "fail", to = null }: { readonly onRewrite?: "fail" | "new_files"; readonly to?: string | null } = {},
): Promise<Listing> {
  await using source = diskTable(table);
  return await source.list([table], { changes: { from, to, onRewrite } });
}

async function idsOf({ shards }: Listing): Promise<number[]> {
  const ids: number[] = [];
  for (const { uri } of shards) {
    ids.push(...(await query(`SELECT id::INTEGER AS id FROM read_parquet('${uri}')`)).map(({ id }) => Number(id)));
  }
  return ids.toSorted((left, right) => left - right);
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}

function refusal(found: string): object {
  return { code: "INPUT_REWRITTEN", message: expect.stringContaining(found) as string };
}

function positionOf({ changes: read }: Listing): string {
  return read?.to ?? "";
}

describe.skipIf(missing !== undefined).each(lakeKinds)(`the changes of a table, %s${skipped}`, (kind) => {
  test("are the files that were added since; of no position, all files", async () => {
    const lake = await growingLake(kind, scratch.path);
    expect((await changes(lake.table, null)).shards).toEqual([]);
    await lake.act("append 0 10");
    const all = await changes(lake.table, null);
    expect(await idsOf(all)).toEqual(range(0, 10));
    await lake.act("append 10 5", "append 15 5");
    const since = await changes(lake.table, positionOf(all));
    expect(await idsOf(since)).toEqual(range(10, 20));
    expect((await changes(lake.table, positionOf(since))).shards).toEqual([]);

    await lake.act("append 20 5");
    const pinned = { to: positionOf(since) };
    expect(await idsOf(await changes(lake.table, positionOf(all), pinned))).toEqual(range(10, 20));
  });

  test("leave compactions out, and have the rows that these have joined with others", async () => {
    const lake = await growingLake(kind, scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10", "compact");
    const second = await changes(lake.table, first);
    expect(await idsOf(second)).toEqual(range(10, 20));
    await lake.act("append 20 10", "append 30 10", "compact");
    expect(await idsOf(await changes(lake.table, positionOf(second)))).toEqual(range(20, 40));
  });

  test("are refused where rows were deleted since, and are the files that were written with new_files", async () => {
    const lake = await growingLake(kind, scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10", "delete 3 5", "append 20 5");
    await expect(changes(lake.table, first)).rejects.toMatchObject({
      code: "INPUT_REWRITTEN",
      exitCode: 66,
      hint: expect.stringMatching(/new_files.*--new-run/) as string,
    });
    const rewritten = [0, 1, 2, ...range(5, 10)];
    expect(await idsOf(await changes(lake.table, first, { onRewrite: "new_files" }))).toEqual(
      [...rewritten, ...range(10, 25)].toSorted((left, right) => left - right),
    );
    const after = positionOf(await changes(lake.table, first, { onRewrite: "new_files" }));
    await lake.act("append 25 5");
    expect(await idsOf(await changes(lake.table, after))).toEqual(range(25, 30));
  });

  test("are refused with new_files where a compaction has joined new rows with others before a rewrite", async () => {
    const lake = await growingLake(kind, scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10", "compact", "delete 12 14");
    await expect(changes(lake.table, first, { onRewrite: "new_files" })).rejects.toMatchObject(refusal("compaction"));
  });

  test("are refused where a file of them is gone", async () => {
    const lake = await growingLake(kind, scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10");
    const [file] = (await changes(lake.table, first)).shards;
    await rename(file?.uri ?? "", `${file?.uri}.gone`);
    await expect(changes(lake.table, first)).rejects.toMatchObject({ code: "INPUT_REWRITTEN" });
  });
});

test.skipIf(missing !== undefined)(
  `of a Delta table are refused where its log has lost a commit, or another table took its place${skipped}`,
  async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10", "append 20 10", "checkpoint", "append 30 10");
    await expect(changes(lake.table, first)).rejects.toMatchObject(refusal("version 2"));
    const all = await changes(lake.table, null);
    expect(await idsOf(all)).toEqual(range(0, 40));
    await lake.act("append 40 10");
    expect(await idsOf(await changes(lake.table, positionOf(all)))).toEqual(range(40, 50));

    await lake.act("replace");
    await expect(changes(lake.table, positionOf(all))).rejects.toMatchObject({ code: "INPUT_REWRITTEN" });
    for (let start = 0; start < 60; start += 10) {
      await lake.act(`append ${start} 10`);
    }
    await expect(changes(lake.table, positionOf(all))).rejects.toMatchObject(refusal("another table"));
  },
);

test.skipIf(missing !== undefined)(
  `of an Iceberg table are refused where a snapshot between expired${skipped}`,
  async () => {
    const lake = await growingLake("iceberg", scratch.path, "append 0 10");
    const first = positionOf(await changes(lake.table, null));
    await lake.act("append 10 10", "append 20 10", "expire");
    await expect(changes(lake.table, first)).rejects.toMatchObject(refusal("expired"));
  },
);
