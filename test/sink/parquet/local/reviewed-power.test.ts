import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { noRows, spanProfileText } from "#src/checks/span-profile.js";
import type { SpanOutput } from "#src/columnar/types.js";
import { spanAt } from "#src/plan/spans.js";
import type { RunSink } from "#src/sink/port.js";
import { scratch } from "../../../support/job.js";
import { lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, bytesLost, type Luck, namesLost } from "../../../support/luck.js";
import { beginRun, drivePlan, driveRows, driveSpans, openDriveSink } from "../../../support/sink-drive.js";
import { decisionOf, verdictOf } from "../../../support/staged-plans.js";

const plan = { ...drivePlan, staged: true, checks: { baseline: [], first: null } };

const privateProfile = '{"features":[]}';
const sealedRows = (span: number): SpanOutput => ({
  ...driveRows(span),
  profile: spanProfileText(noRows),
  privateProfile,
});

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
    await run.judge(verdictOf("hold"));
  }
  await asStored(async (run) => {
    expect([run.state.kind, await run.verdict()]).toEqual(["held", verdictOf("hold")]);
    await run.decide(decisionOf("approved"));
  });
  expect(await asStored((run) => Promise.resolve(run.state))).toEqual({
    kind: "approved",
    decision: decisionOf("approved"),
  });
});

test.each(lucks)(
  "the key of a run survives a power failure with the spans that it opens, and not the end of the run: %s",
  async (_, luck) => {
    const root = join(scratch.path, "disk");
    await mkdir(root);
    const disk = lossyDisk(root);
    const keys = async (): Promise<string[]> =>
      (await readdir(root, { recursive: true })).filter((name) => name.includes("profile.key"));
    {
      await using sink = await openDriveSink(root, disk.fs);
      const run = await beginRun(await sink.open(await sink.create(plan)));
      for (let span = 0; span < driveSpans; span += 1) {
        await run.commit(spanAt(plan, span), sealedRows(span));
      }
      await run.judge(verdictOf("hold"));
      await run.decide(decisionOf("approved"));
    }
    await disk.losePower(luck);
    {
      await using sink = await openDriveSink(root, disk.fs);
      const run = await beginRun(await sink.open((await sink.find(plan.runId)) ?? expect.fail("the plan is lost")));
      expect((await run.profile()).profile.features).toEqual(new Map());
      await run.finish();
    }
    await disk.losePower(luck);
    expect(await keys()).toEqual([]);
  },
);

test.each(lucks)(
  "a key that another attempt had made and not flushed survives a power failure with the spans that it opens: %s",
  async (_, luck) => {
    const root = join(scratch.path, "disk");
    await mkdir(root);
    const disk = lossyDisk(root);
    {
      await using sink = await openDriveSink(root, disk.fs);
      await using other = await openDriveSink(root, disk.fs);
      const stored = await sink.create(plan);
      const [killed, run] = [await beginRun(await sink.open(stored)), await beginRun(await other.open(stored))];
      disk.stopAfter(/^link .*\/profile$/);
      await expect(killed.commit(spanAt(plan, 0), sealedRows(0))).rejects.toThrow();
      expect(disk.calls.filter((call) => /^link .*\/profile$/.test(call))).toHaveLength(1);
      disk.kill();
      for (let span = 0; span < driveSpans; span += 1) {
        await run.commit(spanAt(plan, span), sealedRows(span));
      }
    }
    await disk.losePower(luck);
    await using sink = await openDriveSink(root, disk.fs);
    const run = await sink.open((await sink.find(plan.runId)) ?? expect.fail("the plan is lost"));
    expect([...run.committed]).toEqual(Array.from({ length: driveSpans }, () => 1));
    expect((await run.profile()).profile.features).toEqual(new Map());
  },
);
