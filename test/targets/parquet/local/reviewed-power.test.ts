import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import type { RunSink } from "#src/targets/target.js";
import { scratch } from "../../../support/job.js";
import { lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, bytesLost, type Luck, namesLost } from "../../../support/luck.js";
import { beginRun, drivePlan, driveRows, driveSpans, openDriveSink } from "../../../support/sink-drive.js";
import { decisionOf, verdictOf } from "../../../support/staged-plans.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

const plan = { ...drivePlan, staged: true, checks: { baseline: [] } };

const lucks: readonly (readonly [string, Luck])[] = [
  ["nothing that was not flushed survives", allLost],
  ["names survive and bytes do not", bytesLost],
  ["bytes survive and names do not", namesLost],
];

test.each(lucks)("a verdict and a decision that were reported survive a power failure: %s", async (_, luck) => {
  const root = join(scratch.path, "disk");
  await mkdir(root);
  const disk = lossyDisk(root);
  const asStored = async <T>(work: (run: RunSink) => Promise<T>): Promise<T> => {
    await disk.losePower(luck);
    await using sink = await openDriveSink(root, disk.fs);
    return await work(await sink.open((await sink.find(plan.runId)) ?? expect.fail("the plan is lost")));
  };
  {
    await using sink = await openDriveSink(root, disk.fs);
    const run = await beginRun(await sink.open(await sink.create(plan)));
    for (let span = 0; span < driveSpans; span += 1) {
      await run.commit(spanAt(plan, span), driveRows(span));
    }
    await run.create(verdictDocument, verdictOf("hold"));
  }
  await asStored(async (run) => {
    expect(run.state).toEqual({ kind: "held", verdict: verdictOf("hold") });
    await run.create(decisionDocument, decisionOf("approved"));
  });
  expect(await asStored((run) => Promise.resolve(run.state))).toEqual({
    kind: "approved",
    decision: decisionOf("approved"),
  });
});
