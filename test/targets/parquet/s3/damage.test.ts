import { expect, test } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";

const s3 = useS3();

/** A run of which all but the last span is committed. */
async function unfinished(): Promise<{ at: S3World; part: (span: number) => string } & AsyncDisposable> {
  const at = await s3World(s3.server());
  await using sink = await at.open();
  const { run } = await begun(sink, s3Plan());
  await commitSpan(run, 0);
  await commitSpan(run, 1);
  return {
    at,
    part: (span) => `lake/out/part-0000${span}.${s3Plan().runId}.parquet`,
    [Symbol.asyncDispose]: () => at[Symbol.asyncDispose](),
  };
}

s3.describe("a part in S3 that a resumed attempt checks", () => {
  test.each([
    ["is cut short", (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 20), /PAR1|magic|footer|No magic bytes/i],
    ["is empty", () => new Uint8Array(0), /checking s3:/],
    ["is no Parquet at all", () => Buffer.from("PAR1 but no more than that"), /checking s3:/],
    ["says that its footer is longer than it is", (bytes: Uint8Array) => longFooter(bytes), /checking s3:/],
  ])("a part in S3 is refused with 66, by its name: %s", async (_what, damage, said) => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), damage(await at.bucket.get(part(1))));
    await using sink = await at.open();
    const error: unknown = await carryOutS3(sink).catch((failed: unknown) => failed);
    expect(error).toMatchObject({ code: "OUTPUT_DAMAGED", exitCode: 66, message: expect.stringMatching(said) });
    expect(String(error)).toContain(`checking s3://${at.bucket.name}/${part(1)}: `);
    expect(String(error)).not.toContain("spool");
  });

  test("a part in S3 of another span or another plan is refused with 66", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), await at.bucket.get(part(0)));
    await using sink = await at.open();
    await expect(carryOutS3(sink)).rejects.toMatchObject({
      code: "OUTPUT_DAMAGED",
      message: expect.stringMatching(/it is labelled as span 0 of run/),
    });
  });

  test("a part in S3 that was restored without its metadata is read for its digest", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), await at.bucket.get(part(1)));
    await using sink = await at.open();
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });
});

s3.describe("a target in S3", () => {
  test("rejects that a dead attempt left in S3 are removed when the run is finished without any", async () => {
    await using world = await unfinished();
    const { at } = world;
    await at.bucket.put(`lake/out/_rejects/part-00001.${s3Plan().runId}.0123456789abcdef.jsonl`, "{}\n");
    await using sink = await at.open();
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });

  test.each(["gone", "of another size"])(
    "a finished run in S3 is refused with 66 when a part is %s by then",
    async (what) => {
      await using world = await unfinished();
      const { at, part } = world;
      await using sink = await at.open();
      await carryOutS3(sink);
      await (what === "gone" ? at.bucket.remove(part(2)) : at.bucket.put(part(2), "x"));
      await expect(carryOutS3(sink)).rejects.toMatchObject({
        code: "OUTPUT_DAMAGED",
        message: expect.stringMatching(/^checking s3:.*part-00002.*(gone|it has 1 bytes), the manifest says \d+ bytes/),
      });
    },
  );

  test("a run in S3 that loses a part while it goes on has no _SUCCESS: 66", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await using sink = await at.open();
    const stored = await sink.find(s3Plan().runId);
    const { run } = await begun(sink, stored?.plan ?? s3Plan());
    await commitSpan(run, 2);
    await at.bucket.remove(part(0));
    await expect(run.finish()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
    expect(await at.names()).not.toContain("_SUCCESS");
  });

  test("a run in S3 has no _SUCCESS when another program puts an object there while it goes on: 64", async () => {
    await using world = await unfinished();
    const { at } = world;
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    await commitSpan(run, 2);
    await at.bucket.put("lake/out/data.parquet", "x");
    await expect(run.finish()).rejects.toMatchObject({
      code: "OUTPUT_FOREIGN",
      exitCode: 64,
      message: `checking ${at.uri}: data.parquet is there, which no run wrote`,
    });
    expect((await at.names()).filter((name) => /^_(SUCCESS|manifest)/.test(name))).toEqual([]);
    await at.bucket.remove("lake/out/data.parquet");
    await run.finish();
    expect(await at.faults()).toEqual([]);
  });

  test("a run in S3 whose plan was damaged, replaced or removed ends with 66, and publishes nothing more", async () => {
    await using world = await unfinished();
    const { at } = world;
    const plan = `lake/out/_infer-batch/${s3Plan().runId}/plan.json`;
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    const text = Buffer.from(await at.bucket.get(plan)).toString("utf8");
    await at.bucket.put(plan, text.replace('"score"', '"store"'));
    await expect(commitSpan(run, 2)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
    await at.bucket.remove(plan);
    await expect(commitSpan(run, 2)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
    expect((await at.names()).filter((name) => name.startsWith("part-"))).toHaveLength(2);
  });

  test("a folder of another job in S3 is refused with 64", async () => {
    await using world = await unfinished();
    const { at } = world;
    await using sink = await at.open();
    const other = { ...s3Plan(), runId: "other-000000000000" as ReturnType<typeof numberedRunId> };
    await expect(sink.find(other.runId)).rejects.toMatchObject({ code: "OUTPUT_FOREIGN", exitCode: 64 });
    await expect(sink.create(other)).rejects.toMatchObject({ code: "OUTPUT_FOREIGN" });
  });
});

function longFooter(bytes: Uint8Array): Buffer {
  const longer = Buffer.from(bytes);
  longer.writeUInt32LE(0x7fff_ffff, longer.length - 8);
  return longer;
}
