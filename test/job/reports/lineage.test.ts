import { expect, test } from "vitest";
import { readSpec } from "#src/job/reading.js";
import { beginLineage } from "#src/job/reporting.js";
import type { SpecOverrides } from "../../support/job.js";
import { type Listener, listen } from "../../support/listener.js";
import { type Event, facetOf, parseEvent } from "../../support/openlineage.js";
import { failed, recordOf } from "../../support/records.js";
import { fails, inScratch, tell } from "../../support/telling.js";

const to = (server: Listener, path = ""): SpecOverrides => ({
  report: { openlineage: { url: `${server.url}${path}`, namespace: "prod" } },
});

const eventsAt = ({ calls }: Listener): Event[] => calls.map(({ body }) => parseEvent(JSON.parse(body)));

test("a run sends the lineage events START and COMPLETE with one id, its columns, rows and model", async () => {
  await using server = await listen();
  await inScratch(to(server), async (spec, folder) => {
    expect((await tell(spec)).report?.status).toBe("complete");
    const [start, complete] = eventsAt(server);
    expect(server.calls.map(({ method, path }) => `${method} ${path}`)).toEqual(
      Array.from({ length: 2 }, () => "POST /api/v1/lineage"),
    );
    expect([start?.eventType, complete?.eventType]).toEqual(["START", "COMPLETE"]);
    expect(complete?.run.runId).toBe(start?.run.runId);
    expect(complete?.outputs).toMatchObject([
      { namespace: "file", name: `${folder}/out`, outputFacets: { outputStatistics: { rowCount: 178 } } },
    ]);
    const named = expect.arrayContaining([{ name: "probabilities_0", type: "float32" }]) as unknown;
    expect(facetOf(complete?.outputs[0]?.facets, "schema")["fields"]).toEqual(named);
    expect(complete?.run.facets["inferBatch_model"]).toMatchObject({ sha256: expect.stringMatching(/^\w{64}$/) });
  });
});

test("lineage events carry a token, which is in no message", async () => {
  const token = "4b6f-secret";
  await using server = await listen(() => 401);
  const report = { openlineage: { url: server.url, token } };
  await inScratch({ report }, async (spec) => {
    const { said } = await tell(spec);
    expect(server.calls.map(({ authorization }) => authorization)).toEqual([`Bearer ${token}`, `Bearer ${token}`]);
    expect(said).toContain("calling report.openlineage.url: HTTP 401");
    expect(said).not.toContain(token);
  });
});

test("lineage events carry no token if the spec's token is empty", async () => {
  await using server = await listen();
  const report = { openlineage: { url: server.url, token: "${NO_SUCH_TOKEN:-}" } };
  await inScratch({ report }, async (spec) => {
    expect((await tell(spec)).report?.status).toBe("complete");
    expect(server.calls.map(({ authorization }) => authorization)).toEqual([undefined, undefined]);
  });
});

test("an attempt that fails sends the lineage event FAIL with its error", async () => {
  await using server = await listen();
  await inScratch(to(server, "/lineage/"), async (spec) => {
    await tell(spec, fails);
    expect(server.calls[0]?.path).toBe("/lineage/api/v1/lineage");
    const events = eventsAt(server);
    expect(events.map(({ eventType }) => eventType)).toEqual(["START", "FAIL"]);
    expect(events[1]?.run.facets).toMatchObject({ errorMessage: { message: "connecting to db:5432: no answer" } });
  });
});

test("a lineage server that refuses events or does not answer causes one warning and does not fail the run", async () => {
  await using refusing = await listen(() => 500);
  await inScratch(to(refusing), async (spec) => {
    const { report, said } = await tell(spec);
    expect(report?.status).toBe("complete");
    expect(said.match(/calling report\.openlineage\.url: HTTP 500/g)).toHaveLength(1);
    expect(said).not.toContain(refusing.url);
  });
  const times: number[] = [];
  await using silent = await listen(() => {
    times.push(performance.now());
    return undefined;
  });
  await inScratch(to(silent), async (spec) => {
    const startedMs = performance.now();
    const { report, said } = await tell(spec);
    expect([report?.status, said]).toEqual(["complete", expect.stringContaining("no answer within 2 s")]);
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    // The last event is not sent before the first one was given up: events arrive in their order.
    const [first = 0, last = 0] = times;
    expect(last - first).toBeGreaterThan(1900);
  });
});

test("an event that cannot be made gives a warning, and does not fail the run", async () => {
  await using server = await listen();
  await inScratch(to(server), async (spec, folder) => {
    const warnings: string[] = [];
    const log = { info() {}, debug() {}, warn: (text: string) => void warnings.push(text) };
    const record = { ...recordOf(), startedMs: Number.NaN };
    const loaded = await readSpec(spec, { param: [] });
    const events = beginLineage({ loaded, folder, record, log, signal: new AbortController().signal }, {});
    await events.end({ outcome: failed("away"), endedMs: Number.NaN });
    expect(warnings).toEqual(["sending a lineage event: Invalid time value"]);
  });
});

test("the last event of an attempt that a signal stopped has one second to be answered", async () => {
  await using server = await listen(({ body }) => (body.includes('"START"') ? 200 : undefined));
  await inScratch(to(server), async (spec, folder) => {
    const warnings: string[] = [];
    const log = { info() {}, debug() {}, warn: (text: string) => void warnings.push(text) };
    const loaded = await readSpec(spec, { param: [] });
    const stop = new AbortController();
    const events = beginLineage({ loaded, folder, record: recordOf(), log, signal: stop.signal }, {});
    stop.abort();
    await events.end({ outcome: failed("stopped"), endedMs: 0 });
    expect(warnings).toEqual(["calling report.openlineage.url: no answer within 1 s"]);
  });
});
