import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { type ReuseJob, reuseJob, rowCount, rowsOf, scoresById, scoresOf } from "../support/reuse-job.js";
import { reject } from "../support/rejects.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { useCredentials } from "../support/s3-output.js";
import { scoreHere } from "../support/score.js";
import { mirror } from "../support/s3-target.js";

const s3 = useS3();
const [first, second] = ["2026-01-01", "2026-01-02"] as const;
const unchanged = rowCount * 0.8;

async function jobIn(folder: string, bucket: Bucket): Promise<ReuseJob> {
  useCredentials();
  const endpoint = `http://127.0.0.1:${s3.server().port}`;
  const parquet = { path: `s3://${bucket.name}/out/dt=\${ds}`, endpoint, spool: { path: "spool" } };
  return await reuseJob(folder, { output: { parquet } });
}

async function expectScores(folder: string, bucket: Bucket, ds: string): Promise<void> {
  const to = join(folder, `mirror-${ds}`);
  await mirror(bucket, `out/dt=${ds}`, to);
  expect(scoresById(await outputRows(to))).toEqual(scoresOf(ds));
}

s3.describe("predictions in S3 and their reuse", () => {
  test("predictions in S3 are reused by the next night", async () => {
    const bucket = await s3.server().createBucket();
    const job = await jobIn(scratch.path, bucket);
    await job.night(first);
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, second);
  });

  test("predictions in S3 are reused by a new run that scores the rejected rows, and by the next night", async () => {
    const bucket = await s3.server().createBucket();
    const job = await jobIn(scratch.path, bucket);
    const select = `SELECT id, if(id < 5, NULL, x)::FLOAT AS x FROM (${rowsOf(first)})`;
    expect(await job.night(first, { ...reject, select })).toMatchObject({ rowsRejected: 5 });
    await job.prepare(first);

    const again = await scoreHere(job.spec, { newRun: true, reuse: true });

    expect(again).toMatchObject({ rowsRejected: 0, rowsReused: rowCount - 5, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, first);
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, second);
  });
});
