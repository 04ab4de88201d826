import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { scratch } from "../support/job.js";
import { type Listener, listen } from "../support/listener.js";
import { fewRows, nightlyJob } from "../support/nights.js";
import { type Event, parseEvent } from "../support/openlineage.js";

/** Returns the type of each event that came since the last call, with the run's status and rows. */
function newEvents({ calls }: Listener): () => unknown[] {
  let seen = 0;
  return () => {
    const events: Event[] = calls.slice(seen).map(({ body }) => parseEvent(JSON.parse(body)));
    seen = calls.length;
    return events.map(({ eventType, run, outputs }) => [
      eventType,
      (run.facets["inferBatch_run"] as { status?: string } | undefined)?.status,
      (outputs[0]?.outputFacets["outputStatistics"] as { rowCount?: number } | undefined)?.rowCount,
    ]);
  };
}

const start = ["START", undefined, undefined];

test("lineage events follow a run that is held, approved or discarded", async () => {
  await using server = await listen();
  const report = { openlineage: { url: server.url } };
  const job = await nightlyJob(scratch.path, { report });
  const events = newEvents(server);
  await job.night("run", "2026-11-20");
  expect(events()).toEqual([start, ["COMPLETE", "complete", 442]]);
  await job.rewrite({ report, ...fewRows });
  expect((await job.night("run", "2026-11-21")).code).toBe(67);
  expect(events()).toEqual([start, ["FAIL", "held", undefined]]);
  expect((await job.night("approve", "2026-11-21", "--by", "ana", "--not-normal")).code).toBe(0);
  expect(events()).toEqual([start, ["COMPLETE", "published", 50]]);
  expect((await job.night("approve", "2026-11-21")).stdout).toContain("already published");
  expect(events()).toEqual([]);
  await job.night("run", "2026-11-22");
  events();
  await job.night("discard", "2026-11-22");
  expect(events()).toEqual([start, ["ABORT", "discarded", undefined]]);
  await job.night("run", "2026-11-22");
  expect(events()).toEqual([start, ["FAIL", "discarded", undefined]]);
});

test("lineage events follow a run that its checks approved, whose process was killed before it published the run", async () => {
  await using server = await listen();
  const job = await nightlyJob(scratch.path, { report: { openlineage: { url: server.url } } });
  const events = newEvents(server);
  await job.night("run", "2026-11-20");
  events();
  const out = job.folder("2026-11-20");
  await Promise.all(["_SUCCESS", "_manifest.json"].map((name) => rm(join(out, name))));
  expect((await job.night("approve", "2026-11-20")).code).toBe(0);
  expect(events()).toEqual([start, ["COMPLETE", "published", 442]]);
  expect(await readdir(out)).toContain("_SUCCESS");
});

test("a backfill sends the lineage events of each date, and makes no calls", async () => {
  await using server = await listen();
  const report = { openlineage: { url: server.url }, on_success: `${server.url}/success` };
  const job = await dailyJob(scratch.path, { report });
  const events = newEvents(server);
  await job.backfill("--json");
  const scored = [start, ["COMPLETE", "complete", 442]];
  const withoutInput = [start, ["FAIL", undefined, undefined]];
  expect(events()).toEqual([...scored, ...scored, ...scored, ...withoutInput, ...withoutInput]);
});
