import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { identity, smallJob } from "../support/faulty.js";
import { type HttpProxy, httpProxy, s3Error } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { outputRows, partNames } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import { runInS3 } from "../support/s3-job.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { expectEnd } from "../support/cli.js";

const s3 = useS3();

const rows = 120_000;
const shown = (from: number): string =>
  `SELECT (${from} + i)::BIGINT AS id, ((${from} + i) / 8)::FLOAT AS x, hash(i)::DOUBLE AS y FROM range(${rows / 4}) t(i)`;

interface World extends AsyncDisposable {
  readonly bucket: Bucket;
  readonly proxy: HttpProxy;
  readonly spec: string;
  readonly out: string;
  readonly folder: string;
}

/** Four shards of five row groups, in spans of 10,000 rows; the store is away for no longer than a second. */
async function jobInS3(): Promise<World> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
  const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1" });
  for (let shard = 0; shard < 4; shard += 1) {
    const path = join(scratch.path, `${shard}.parquet`);
    await writeRows(path, shown((shard * rows) / 4), "COMPRESSION uncompressed, ROW_GROUP_SIZE 6144");
    await bucket.putFile(`in/${shard}.parquet`, path);
  }
  await job.rewrite({
    input: { path: `s3://${bucket.name}/in/*.parquet` },
    output: { columns: ["id", "y"] },
    commit_rows: 10_000,
    retry: { max_seconds: 1 },
  });
  return {
    bucket,
    proxy,
    spec: job.spec,
    out: job.out,
    folder: scratch.path,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

/** Ids in ascending order; every row must have the values that were there for its id. */
async function ids(out: string): Promise<number[]> {
  const [wrong] = await query(
    `SELECT count(*)::INTEGER AS rows FROM '${out}/part-*.parquet'
     WHERE y IS DISTINCT FROM hash(id % ${rows / 4})::DOUBLE OR score IS DISTINCT FROM (id / 8)::FLOAT`,
  );
  expect(wrong).toEqual({ rows: 0 });
  return (await outputRows(out)).map(({ id }) => Number(id)).toSorted((one, other) => one - other);
}

const all = Array.from({ length: rows }, (_, id) => id);

s3.describe("a run over shards in S3", () => {
  test("a run over shards in S3 ends with 75 when the store stays unreachable, and the same command continues", async () => {
    await using world = await jobInS3();
    let seen = 0;
    const away = s3Error(503, "SlowDown");
    world.proxy.twist = (request) => {
      seen += request.includes("/in/3.parquet") ? 1 : 0;
      return seen > 1 && request.includes("/in/3.parquet") ? away : undefined; // once for its footer
    };

    const first = await runInS3(["run", world.spec], { port: world.proxy.port });
    const committed = (await partNames(world.out)).length;
    world.proxy.twist = undefined;
    const second = await runInS3(["run", world.spec, "--json"], { port: world.proxy.port });

    expect(first.code).toBe(75);
    expect(first.stderr).toMatch(
      /error: reading s3:\/\/bucket-\d+\/in\/3\.parquet: the store says SlowDown, 503 \(tried/,
    );
    expect(committed).toBeGreaterThan(0);
    expect(committed).toBeLessThan(12);
    expect(second, second.stderr).toMatchObject({ code: 0 });
    expect(JSON.parse(second.stdout)).toMatchObject({ spans_planned: 12, spans_resumed: committed });
    expect(await ids(world.out)).toEqual(all);
  });

  test("a run over shards in S3 does not read committed rows again", async () => {
    await using world = await jobInS3();
    await runInS3(["run", world.spec], { port: world.proxy.port });
    const whole = world.proxy.bodyBytes;
    const before = world.proxy.requests.length;
    const names = await partNames(world.out);
    await rm(join(world.out, "_SUCCESS"));
    await rm(join(world.out, names[4] ?? "")); // rows 40,000 to 49,999, of shard 1

    const second = await expectEnd(runInS3(["run", world.spec, "--json"], { port: world.proxy.port }), 0);
    expect(JSON.parse(second.stdout)).toMatchObject({ spans_resumed: 11, rows_scored: 10_000 });
    expect(await ids(world.out)).toEqual(all);
    expect(world.proxy.bodyBytes - whole).toBeLessThan(whole / 4);
    const gets = world.proxy.requests.slice(before).filter((request) => request.includes("bytes="));
    expect(gets.length).toBeGreaterThan(0);
    expect(gets.filter((request) => !request.includes("/in/1.parquet"))).toEqual([]);
  });

  test("a run over shards in S3 ends with 66 when a shard is replaced in the middle of it, and commits nothing of the new one", async () => {
    await using world = await jobInS3();
    const other = join(world.folder, "other.parquet");
    await writeRows(other, shown(1_000_000), "COMPRESSION uncompressed, ROW_GROUP_SIZE 6144");
    let seen = 0;
    let replaced: Promise<void> | undefined;
    world.proxy.twist = (request) => {
      seen += request.includes("/in/3.parquet") ? 1 : 0;
      if (seen === 2) {
        replaced ??= world.bucket.putFile("in/3.parquet", other);
      }
      return replaced && { kind: "hold", until: replaced };
    };

    const result = await runInS3(["run", world.spec], { port: world.proxy.port });
    await replaced;

    expect(result.code).toBe(66);
    expect(result.stderr).toMatch(/error: reading s3:\/\/bucket-\d+\/in\/3\.parquet: its ETag has changed/);
    expect((await ids(world.out)).every((id) => id < rows)).toBe(true);
    await expectEnd(
      runInS3(["run", world.spec], { port: s3.server().port }),
      66,
      "changed since it was planned: s3://",
    );
  });

  test("a run over shards in S3 reports damage with the shard's name and place", async () => {
    await using world = await jobInS3();
    const path = join(world.folder, "2.parquet");
    const [place] = await query(
      `SELECT data_page_offset AS at, total_compressed_size AS size FROM parquet_metadata('${path}') WHERE row_group_id = 3 AND path_in_schema = 'y'`,
    );
    const bytes = Buffer.from(await world.bucket.get("in/2.parquet"));
    bytes.fill(0xff, Number(place?.["at"]), Number(place?.["at"]) + 16);
    await writeFile(path, bytes);
    await world.bucket.putFile("in/2.parquet", path);

    const result = await expectEnd(
      runInS3(["run", world.spec], { port: world.proxy.port }),
      65,
      /error: reading s3:\/\/bucket-\d+\/in\/2\.parquet: row group 3 \(rows 18432 to 24575\), column `y`: /,
    );
    expect(result.stderr).not.toContain("spool");
    expect((await partNames(world.out)).length).toBeGreaterThanOrEqual(7);
  });
});
