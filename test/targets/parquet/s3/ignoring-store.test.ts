import { expect, test } from "vitest";
import { s3Error, type Twist } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { carryOutS3, commitSpan, s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { alone } from "../../../support/sink-drive.js";
import { begun } from "../../../support/sinks.js";

const s3 = useS3();

/** As a store that ignores the header: the existing object is removed before a PUT arrives. */
function ignoring({ bucket, proxy }: S3World): void {
  proxy.twist = (request, headers): Twist | undefined => {
    const key = decodeURIComponent(request.split(" ")[1]?.split("?")[0] ?? "").slice(bucket.name.length + 2);
    return headers["if-none-match"] === undefined ? undefined : { kind: "hold", until: bucket.remove(key) };
  };
}

function refusingVersions({ proxy }: S3World): void {
  proxy.twist = (request, headers) =>
    request.startsWith("PUT ") && headers["if-match"] !== undefined ? s3Error(501, "NotImplemented") : undefined;
}

function refusing({ proxy }: S3World): void {
  proxy.twist = (_request, headers) =>
    headers["if-none-match"] === undefined ? undefined : s3Error(501, "NotImplemented");
}

s3.describe.each([
  ["ignores If-None-Match", ignoring],
  ["refuses If-None-Match", refusing],
  ["refuses If-Match", refusingVersions],
])("a store that %s", (_what, make) => {
  test("one worker writes to a store that ignores If-None-Match, is warned, and adopts existing parts", async () => {
    await using at = await s3World(s3.server());
    make(at);
    const warnings: string[] = [];
    await using sink = await at.open({ warn: (message) => warnings.push(message) });
    const { run, stored } = await begun(sink, s3Plan());
    await commitSpan(run, 0);
    await using other = await at.open();
    const beside = await begun(other, stored.plan);
    expect(await commitSpan(beside.run, 1)).toBe("committed");
    expect(await commitSpan(run, 1)).toBe("adopted");
    expect(warnings).toContain(
      `${at.uri}: the store does not honour conditional writes, so attempts at once could replace each other's parts; run only one worker at a time`,
    );
    await carryOutS3(sink);
    await carryOutS3(other, 2);
    expect(await at.faults(2)).toEqual([]);
  });

  test("several workers are refused in a store that ignores If-None-Match, before anything is committed", async () => {
    await using at = await s3World(s3.server());
    make(at);
    await using sink = await at.open();
    const stored = await sink.create(s3Plan());
    for (const worker of [0, 1]) {
      const run = await sink.open(stored);
      await expect(run.begin({ ...alone, worker, workers: 2 })).rejects.toMatchObject({
        code: "USAGE",
        exitCode: 64,
        message: `preparing ${at.uri}: the store does not honour conditional writes, and 2 workers would share it`,
      });
    }
    expect((await at.names()).filter((name) => name.startsWith("part-"))).toEqual([]);
  });
});

s3.describe("a store that honours If-None-Match", () => {
  test("a store that honours If-None-Match is recognised, also while another program removes the probe", async () => {
    await using at = await s3World(s3.server());
    let asked = 0;
    at.proxy.twist = (request): Twist | undefined => {
      asked += /^PUT .*probe/.test(request) ? 1 : 0;
      const [, key = ""] = /^PUT \/[^/]+\/([^? ]+)/.exec(request) ?? [];
      return key.includes("probe") && asked === 2 ? { kind: "hold", until: at.bucket.remove(key) } : undefined;
    };
    await using sink = await at.open();
    const stored = await sink.create(s3Plan());
    const run = await sink.open(stored);
    await run.begin({ ...alone, workers: 4 });
    expect(asked).toBe(6);
    expect((await at.names()).filter((name) => name.includes("probe"))).toEqual([]);
  });

  test("probes of dead attempts are removed, and those of running ones stay", async () => {
    await using at = await s3World(s3.server());
    const working = `_infer-batch/${s3Plan().runId}/tmp`;
    await at.bucket.put(`lake/out/${working}/probe.dead`, "");
    await at.bucket.put(`lake/out/${working}/probe.elsewhere`, "");
    await using sink = await at.open({ isDead: (writer) => writer === "dead" });
    const { run } = await begun(sink, s3Plan());
    expect((await at.names()).filter((name) => name.includes("probe"))).toEqual([`${working}/probe.elsewhere`]);
    for (const span of [0, 1, 2]) {
      await commitSpan(run, span);
    }
    await run.finish();
    expect(await at.faults()).toEqual([]);
  });
});
