import { expect, test } from "vitest";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { begun } from "../../../support/sinks.js";

const s3 = useS3();

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

  test("a part in S3 that was restored without its metadata is read for its digest", async () => {
    await using world = await unfinished();
    const { at, part } = world;
    await at.bucket.put(part(1), await at.bucket.get(part(1)));
    await using sink = await at.open();
    await carryOutS3(sink);
    expect(await at.faults()).toEqual([]);
  });
});

function longFooter(bytes: Uint8Array): Buffer {
  const longer = Buffer.from(bytes);
  longer.writeUInt32LE(0x7fff_ffff, longer.length - 8);
  return longer;
}
