import { expect, test } from "vitest";
import { lostPlanText } from "#src/targets/parquet/plan-file.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { useS3 } from "../support/s3.js";
import { folderName, s3OutputJob } from "../support/s3-output.js";
import { runSpec, scoreHere } from "../support/score.js";
import { firstOf } from "../support/torture.js";

const s3 = useS3();

const idInS3 = "diabetes-mlp-4f53cda18c2b";
const planInS3 = (number: number): string => `_infer-batch/${idInS3}${number === 1 ? "" : `-r${number}`}/plan.json`;
const partInS3 = (span: number): string => `part-0000${span}.${idInS3}.parquet`;

s3.describe("a damaged output in S3", () => {
  test.each([
    {
      what: "without two of its parts, and one that was cut short",
      runs: 1,
      gone: [partInS3(1), partInS3(4)],
      cut: partInS3(2),
      says: /part-00001.*it is gone.*2 more parts/,
    },
    {
      what: "with a damaged plan",
      runs: 1,
      cut: `_infer-batch/${idInS3}/plan.json`,
      says: /plan.json: it is damaged/,
    },
    { what: "without its manifest", runs: 1, gone: ["_manifest.json"], says: /_manifest.json: it is gone or damaged/ },
    {
      what: "whose plans are all lost, after a new run was killed while it marked them",
      runs: 3,
      gone: [1, 2, 3].map((number) => planInS3(number)),
      marked: planInS3(2),
      says: /it has parts of run .*-r3, and no/,
    },
  ])(
    "$what: is refused by run, told by status, and replaced by --new-run",
    async ({ runs, gone = [], cut, marked, says }) => {
      const bucket = await s3.server().createBucket();
      const job = await s3OutputJob(scratch.path, { bucket, port: s3.server().port });
      await scoreHere(job.spec);
      for (let number = 2; number <= runs; number += 1) {
        await scoreHere(job.spec, { newRun: true });
      }
      for (const name of gone) {
        await bucket.remove(`${folderName}/${name}`);
      }
      if (marked !== undefined) {
        await bucket.put(`${folderName}/${marked}`, lostPlanText);
      }
      if (cut !== undefined) {
        await bucket.put(`${folderName}/${cut}`, (await bucket.get(`${folderName}/${cut}`)).slice(0, 400));
      }
      const status = await runHere(["status", job.spec]);
      const refused = await runSpec(job.spec);
      expect([status.code, refused.code], refused.stderr).toEqual([66, 66]);
      expect(refused.stderr).toMatch(says);
      expect(refused.stderr).toMatch(/or start over with infer-batch run \S+ --new-run/);
      expect(status.stderr).toBe(refused.stderr);
      expect(
        gone.every((name) => name.startsWith("_") || status.stdout.includes(name)),
        status.stdout,
      ).toBe(true);
      await expectEnd(runSpec(job.spec, { args: ["--new-run"] }), 0);
      await job.expectDone(runs + 1);
    },
  );

  test.each(
    firstOf([
      { what: "part", checks: { on_fail: "warn" }, gone: partInS3(2) },
      { what: "manifest", checks: {}, gone: "_manifest.json" },
    ]),
  )(
    "a run in S3 that lost a $what is finished anew as the hint says, with the profile that it had",
    async ({ checks, gone }) => {
      const bucket = await s3.server().createBucket();
      const job = await s3OutputJob(scratch.path, { bucket, port: s3.server().port }, { checks });
      await scoreHere(job.spec);
      const profileOf = async (): Promise<string> =>
        Buffer.from(await bucket.get(`${folderName}/_infer-batch/${idInS3}/profile.json`)).toString();
      const profile = await profileOf();
      expect(profile).toContain('"features"');
      await bucket.remove(`${folderName}/${gone}`);
      expect((await runSpec(job.spec)).stderr).toContain("delete _SUCCESS");
      await bucket.remove(`${folderName}/_SUCCESS`);
      await expectEnd(runSpec(job.spec), 0);
      expect(await profileOf()).toBe(profile);
      await job.expectDone();
    },
  );
});
