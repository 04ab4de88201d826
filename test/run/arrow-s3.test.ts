import { mkdir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fixtureAsArrow, writeArrow } from "../support/arrow.js";
import { expectEnd, projectFolder } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, scratchFolder, writeSpec } from "../support/job.js";
import { outputRows, without } from "../support/output.js";
import { query, readRows } from "../support/parquet.js";
import { runInS3, upload } from "../support/s3-job.js";
import { useS3 } from "../support/s3.js";
import { tcpProxy } from "../support/tcp-proxy.js";
import { fixtureNamed } from "../support/world.js";

const s3 = useS3();
const port = (): number => s3.server().port;

s3.describe("Arrow shards in S3", () => {
  test.each([
    ["file", "penguins-pipeline"],
    ["stream", "sentences-mean"],
  ] as const)("Arrow shards in S3 are scored as Python did, from a %s (%s)", async (kind, name) => {
    await using folder = await scratchFolder();
    const bucket = await s3.server().createBucket();
    const fixture = fixtureNamed(name);
    await mkdir(join(folder.path, "in"));
    await fixtureAsArrow(join(folder.path, "in"), fixture.table, kind);
    await upload(bucket, join(folder.path, "in"), "lake/");
    const spool = join(folder.path, "spool");
    const input = { path: `s3://${bucket.name}/lake/*`, spool: { path: spool }, verify: "full" };

    await expectEnd(
      runInS3(["run", await writeSpec(folder.path, fixture, { input, commit_rows: 29 })], {
        port: port(),
      }),
      0,
    );
    expect(differences(await outputRows(join(folder.path, "out")), await goldenRows(fixture))).toEqual([]);
    expect(await readdir(spool)).toEqual([]);
  });

  test.each(["plain.arrow", "zstd.arrows"])(
    "Arrow shards in S3 have every type, dictionaries among them (%s)",
    async (name) => {
      const bucket = await s3.server().createBucket();
      await bucket.putFile(`in/${name}`, join(projectFolder, "fixtures/arrow", name));
      const types = join(projectFolder, "fixtures/arrow/types.parquet");
      const columns = (await query(`DESCRIBE SELECT * FROM '${types}'`)).map((row) => String(row["column_name"]));
      const job = await smallJob(scratch.path, {
        model: identity,
        select: "SELECT 1",
        input: { path: `s3://${bucket.name}/in/*`, spool: { path: "spool" }, where: "id >= 0" },
        modelSpec: { inputs: { x: ["id"] } },
        output: { columns, parquet: { path: "out" } },
      });

      await expectEnd(runInS3(["run", job.spec], { port: port() }), 0);
      const rows = without("score", await outputRows(job.out));
      expect(rows).toEqual(await readRows(types));
    },
  );

  test("Arrow shards in S3 are fetched by needed column, and a row that cannot be scored is named", async () => {
    await using proxy = await tcpProxy(port());
    const bucket = await s3.server().createBucket();
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1" });
    const columns = Array.from({ length: 32 }, (_, index) =>
      index === 7 ? "CASE WHEN i <> 19999 THEN i / 8 END::DOUBLE AS f7" : `hash(i + ${index})::DOUBLE AS f${index}`,
    );
    const path = join(scratch.path, "a.arrow");
    const select = `SELECT i::BIGINT AS id, ${columns.join(", ")} FROM range(20000) t(i)`;
    await writeArrow(path, select, { batchRows: 5000 });
    await bucket.putFile("in/a.arrow", path);
    await job.rewrite({
      input: { path: `s3://${bucket.name}/in/*.arrow`, spool: { path: "spool" } },
      model: { inputs: { x: ["f7"] } },
      output: { columns: ["id", "f20"] },
      on_bad_row: "reject",
    });

    const result = await expectEnd(runInS3(["run", job.spec, "--json"], { port: proxy.port }), 0);
    expect(JSON.parse(result.stdout)).toMatchObject({ rows_scored: 19_999, rows_rejected: 1 });
    const needed = (await stat(path)).size * (3 / 33);
    // The row that was rejected is read once more, in its batch.
    expect(proxy.bytesFromServer).toBeLessThan(needed * 1.5 + 128 * 1024);
    expect(proxy.bytesFromServer).toBeGreaterThan(needed * 0.8);
  });
});
