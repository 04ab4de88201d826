import { join } from "node:path";
import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { OpenedJob } from "#src/flow/opened-job.js";
import type { Decoder, ShardFooter } from "#src/formats/format.js";
import type { ListedShard } from "#src/run/plan/compare.js";
import { readShards } from "#src/run/input.js";
import { writeArrow } from "../support/arrow.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { partNames } from "../support/output.js";
import { query } from "../support/parquet.js";
import { shardJob } from "../support/shards.js";

const listed: ListedShard[] = ["a", "b", "c"].map((name) => ({ uri: `/in/${name}`, sizeBytes: 1, fingerprint: name }));

const footer: ShardFooter = {
  rows: 10,
  schema: { columns: [] },
  encrypted: [],
  nulls: new Map(),
} as unknown as ShardFooter;

/** Counts how many opened shards are not closed. @param changed the shard that has changed when its footer is read */
function inputOf(changed?: string): { readonly opened: OpenedJob; readonly open: () => number } {
  let open = 0;
  const opened = {
    job: { spec: { name: "daily", input: { path: ["in/*"], min_rows: 1, verify: "pinned", partitions: {} } } },
    input: {
      filesAtOnce: (most: number) => Math.min(most, 2),
      source: {
        open: ({ uri }: ListedShard) => {
          open += 1;
          return Promise.resolve({
            name: uri,
            partitions: new Map(),
            check: () => (uri === changed ? Promise.reject(new JobError("INPUT_CHANGED", uri)) : Promise.resolve()),
            [Symbol.asyncDispose]: () => {
              open -= 1;
              return Promise.resolve();
            },
          });
        },
      },
    },
    attempt: { signal: new AbortController().signal },
    reporter: {},
  } as unknown as OpenedJob;
  return { opened, open: () => open };
}

/** A decoder that reads at most so many footers of the shards it is given. */
const decoderOf = (most: number): Decoder =>
  ({
    async *footers(shards: readonly unknown[]) {
      for (let index = 0; index < Math.min(most, shards.length); index += 1) {
        yield await Promise.resolve(footer);
      }
    },
  }) as unknown as Decoder;

test("planning counts the rows of all shards", async () => {
  const { opened, open } = inputOf();
  expect(await readShards(opened, decoderOf(2), listed)).toMatchObject({ rows: 30, shards: [{}, {}, {}] });
  expect(open()).toBe(0);
});

test("planning fails when a shard has changed while footers are read", async () => {
  const { opened, open } = inputOf("/in/b");
  await expect(readShards(opened, decoderOf(2), listed)).rejects.toMatchObject({ code: "INPUT_NOT_READY" });
  expect(open()).toBe(0);
});

test("planning fails when a decoder ends before it has read the footers of all shards", async () => {
  const { opened, open } = inputOf();
  await expect(readShards(opened, decoderOf(1), listed)).rejects.toThrow("1 footers came of 2 shards");
  expect(open()).toBe(0);
});

/** More bytes of waiting rows than a thread holds: 24 MiB. */
const largeRows = 14_000;
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
  const parts = (await partNames(job.out)).map((name) => `'${join(job.out, name)}'`);
  const rows = await query(`SELECT id, score FROM read_parquet([${parts.join()}])`);
  expect(rows).toHaveLength(from);
  expect(rows.every(({ id, score }, index) => Number(id) === index && score === index * 2)).toBe(true);
});
