import { expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { s3Error } from "../../../support/http-proxy.js";
import { useS3 } from "../../../support/s3.js";
import { s3Plan, s3World, type S3World } from "../../../support/s3-sink-world.js";
import { s3Target } from "../../../support/s3-target.js";
import { begun } from "../../../support/sinks.js";
import { until } from "../../../support/waiting.js";
import { toldAt } from "../../../support/told.js";

const s3 = useS3();
const badRow = new JobError("BAD_ROW", "row 3 is bad");

/** Answers each request with SlowDown, and counts them. */
function slowStore({ proxy }: S3World): { count: number } {
  const seen = { count: 0 };
  proxy.twist = () => {
    seen.count += 1;
    return s3Error(503, "SlowDown");
  };
  return seen;
}

s3.describe("errors of attempts at a target in S3", () => {
  test("an attempt that ends because the store is unreachable tries for some seconds to record the error, and does not fail", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { stored } = await begun(sink, s3Plan());
    slowStore(at);
    const startMs = performance.now();
    await toldAt(sink, stored.plan.runId).failed(new JobError("OBJECT_STORE", "reading s3://lake/x: SlowDown"));
    expect(performance.now() - startMs).toBeLessThan(20_000);
  });

  test("a note that fails because the store is away does not keep the run from being planned once it is back", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const plan = s3Plan();
    let isAway = true;
    at.proxy.twist = () => (isAway ? s3Error(403, "AccessDenied") : undefined);
    await expect(toldAt(sink, plan.runId).add("late", "a")).rejects.toThrow();
    isAway = false;
    const { run } = await begun(sink, plan);
    expect(run.state.kind).toBe("unfinished");
  });

  test("requests that only inform people end when they are stopped, although requests may be retried for minutes", async () => {
    await using at = await s3World(s3.server());
    const seen = slowStore(at);
    using store = s3Target({ port: at.proxy.port, retrySeconds: 300 });
    const stop = new AbortController();
    const reading = store.until(stop.signal).readText({ bucket: at.bucket.name, key: "lake/x" });
    const ended = expect(reading).rejects.toThrow("too late");
    await until(() => seen.count > 0);
    stop.abort(new Error("too late"));
    await ended;
  });

  test("an error is not recorded if the plan of the run is gone", async () => {
    await using at = await s3World(s3.server());
    await using sink = await at.open();
    const { stored } = await begun(sink, s3Plan());
    const told = toldAt(sink, stored.plan.runId);
    await told.failed(badRow);
    const errors = (await at.names()).filter((name) => name.endsWith("errors.json"));
    expect(errors).toHaveLength(1);
    for (const key of await at.bucket.keys()) {
      await at.bucket.remove(key);
    }
    await told.failed(badRow);
    expect(await at.names()).toEqual([]);
  });
});
