import { expect, test } from "vitest";
import { numberedRunId } from "#src/plan/identity.js";
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

s3.describe("a part in S3 that an attempt takes up", () => {
  test.each([
    ["is cut short", (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 20), /PAR1|magic|footer|No magic bytes/i],
    ["is empty", () => new Uint8Array(0), /checking s3:/],
    ["is no Parquet at all", () => Buffer.from("PAR1 but no more than that, and nobody knows why"), /checking s3:/],
    ["says that its footer is longer than it is", (bytes: Uint8Array) => longFooter(bytes), /checking s3:/],
  ])("%s: 66, naming it", async (_what, damage, said) => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), damage(await at.bucket.get(part(1))));
    await using sink = await at.open();
    const error: unknown = await carryOutS3(sink).catch((failed: unknown) => failed);
    expect(error).toMatchObject({ code: "OUTPUT_DAMAGED", exitCode: 66, message: expect.stringMatching(said) });
    expect(String(error)).toContain(`checking s3://${at.bucket.name}/${part(1)}: `);
    expect(String(error)).not.toContain("spool");
  });

  test("is another span's, or another plan's: 66", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), await at.bucket.get(part(0)));
    await using sink = await at.open();
    await expect(carryOutS3(sink)).rejects.toMatchObject({
      code: "OUTPUT_DAMAGED",
      message: expect.stringMatching(/it is labelled as span 0 of run/),
    });
  });

  test("was put back from a copy without its metadata: it is read for its digest", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), await at.bucket.get(part(1)));
    await using sink = await at.open();
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });
});

s3.describe("a target in S3", () => {
  test("loses the rejects that a dead attempt left for a part without any, when the run is finished", async () => {
    await using world = await unfinished();
    const { at } = world;
    await at.bucket.put(`lake/out/_rejects/part-00001.${s3Plan().runId}.0123456789abcdef.jsonl`, "{}\n");
    await using sink = await at.open();
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });

  test.each(["gone", "of another size"])("with a part that is %s since the run was finished: 66", async (what) => {
    await using world = await unfinished();
    const { at, part } = world;
    await using sink = await at.open();
    await carryOutS3(sink);
    await (what === "gone" ? at.bucket.remove(part(2)) : at.bucket.put(part(2), "x"));
    await expect(carryOutS3(sink)).rejects.toMatchObject({
      code: "OUTPUT_DAMAGED",
      message: expect.stringMatching(/^checking s3:.*part-00002.*(gone|it has 1 bytes), the manifest says \d+ bytes/),
    });
  });

  test("that loses a part while the run goes on has no _SUCCESS: 66", async () => {
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

  test("in which something else puts an object while the run goes on has no _SUCCESS: 64", async () => {
    await using world = await unfinished();
    const { at } = world;
    await using sink = await at.open();
    const { run } = await begun(sink, s3Plan());
    await commitSpan(run, 2);
    await at.bucket.put("lake/out/data.parquet", "x");
    await expect(run.finish()).rejects.toMatchObject({
      code: "OUTPUT_FOREIGN",
      exitCode: 64,
      message: `looking at ${at.uri}: data.parquet is there, which no run wrote`,
    });
    expect((await at.names()).filter((name) => /^_(SUCCESS|manifest)/.test(name))).toEqual([]);
    await at.bucket.remove("lake/out/data.parquet");
    await run.finish();
    expect(await at.faults()).toEqual([]);
  });

  test("whose plan was damaged, replaced or removed: 66, and nothing more of the run", async () => {
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

  test("of another job: 64", async () => {
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
