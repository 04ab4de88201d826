import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import { answersIn, answersOf, inOrder } from "../../../support/answers-contract.js";
import { holdFirst, s3Error } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";

const s3 = useS3();
const answerNames = async (at: S3World): Promise<string[]> =>
  (await at.names()).filter((name) => name.includes("/answers/"));

s3.describe("answers that are kept in S3", () => {
  test("objects of answers that are damaged, or gone since they were listed, are left out", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const journal = (await begun(sink, s3Plan())).run.answers();
    await journal.keep(answersOf(1, 2));
    await journal.keep(answersOf(3));
    await journal.keep(answersOf(4));
    const [first = "", second = ""] = await answerNames(at);
    const text = await at.get(first);
    await at.bucket.put(`lake/out/${first}`, text.replace("answer 1", "answer 9"));
    at.proxy.twist = (request) => {
      return request.startsWith("GET ") && request.includes(second.slice(second.lastIndexOf("/")))
        ? s3Error(404, "NoSuchKey")
        : undefined;
    };
    expect(await answersIn(journal)).toEqual(inOrder(answersOf(2, 4)));
  });

  test("an attempt that keeps answers while a later run is planned leaves none in S3", async () => {
    await using at = await s3World(s3.server());
    await using slow = await at.open();
    await using other = await at.open();
    const journal = (await begun(slow, s3Plan())).run.answers();
    const { reached, go } = holdFirst(at.proxy, /^PUT .*\/answers\//);
    const keeping = journal.keep(answersOf(1));
    await reached;
    await begun(other, { ...s3Plan(), runId: numberedRunId(s3Plan().runId, 2) });
    go();
    await expect(keeping).rejects.toMatchObject({ code: "PLAN_CHANGED" });
    expect(await answerNames(at)).toEqual([]);
  });
});
