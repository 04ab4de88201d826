import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { spanAt, spanCount } from "#src/run/plan/spans.js";
import { numberedRunId } from "#src/run/plan/identity.js";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import type { StoredPlan } from "#src/targets/target.js";
import { failuresOf } from "../../support/crash.js";
import { hookedDisk } from "../../support/hooked-disk.js";
import { scratch, scratchFolder } from "../../support/job.js";
import { rowsOfDelta } from "../../support/lakes.js";
import { type Fault, type LossyDisk, lossyDisk } from "../../support/lossy-disk.js";
import { allLost, bytesLost, type Luck, namesLost } from "../../support/luck.js";
import { beginRun, beginUnlessFinished } from "../../support/sink-drive.js";
import { readingCall } from "../../support/sink-torture.js";
import { begun, carryOut, commitSpans, deltaSink, idsOf, outputOf, planFor, whole } from "../../support/sinks.js";
import { tellingCalls, torture } from "../../support/torture.js";

const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);
const target = { kind: "delta" };
const newVersion = /^link .*0{20}/;

async function idsIn(table: string): Promise<number[]> {
  return (await rowsOfDelta(table)).map(({ id }) => Number(id)).toSorted((one, other) => one - other);
}

async function attempt(table: string, fs: FileSystem, plan: Plan): Promise<void> {
  await using sink = deltaSink(table, { fs, isDead: () => true, allowDuplicates: false });
  const stored = (await sink.find(plan.runId)) ?? (await sink.create(plan));
  const run = await beginUnlessFinished(sink, stored);
  for (let index = 0; index < spanCount(plan) && run.state.kind !== "published"; index += 1) {
    if (!run.spans.has(index)) {
      await run.commit(spanAt(plan, index), whole(outputOf(idsOf(spanAt(plan, index)))));
    }
  }
  await (run.state.kind === "published" ? undefined : run.finish());
}

const nights: readonly { readonly what: string; readonly fault: Fault; readonly luck?: Luck }[] = [
  { what: "dies", fault: { kind: "stop" } },
  { what: "loses power", fault: { kind: "stop" }, luck: allLost },
  { what: "loses power, and names survive", fault: { kind: "stop" }, luck: bytesLost },
  { what: "loses power, and bytes survive", fault: { kind: "stop" }, luck: namesLost },
  { what: "does its work and says it did not", fault: { kind: "late", errno: "EIO" } },
  { what: "fails", fault: { kind: "fail", errno: "EIO" } },
];

async function onDisk<T>(work: (disk: LossyDisk, table: string) => Promise<T>): Promise<T> {
  await using folder = await scratchFolder();
  const root = join(folder.path, "disk");
  await mkdir(root);
  return await work(lossyDisk(root), join(root, "table"));
}

async function planBefore(table: string, disk: LossyDisk, { runId }: Plan): Promise<void> {
  const first = planFor(target);
  await using sink = deltaSink(table, { fs: disk.fs });
  await (runId === first.runId ? undefined : sink.create(first));
}

/** A run whose parts are in their place when they are committed, and one whose parts are moved there when it is published. */
const plans = [planFor(target), planFor(target, { runId: "job-000000000000-r2" })];

const tried = nights.flatMap((night, index) =>
  plans.filter((_, of) => torture || of === index % 2).map((plan) => ({ night, plan })),
);

describe("a version of a Delta table", () => {
  test.each(tried)(
    "has all rows of $plan.runId or none, and after the same command each once, if the disk $night.what at any call",
    async ({ night: { fault, luck, what }, plan }) => {
      const calls = await onDisk(async (disk, table) => {
        await planBefore(table, disk, plan);
        const before = disk.calls.length;
        await attempt(table, disk.fs, plan);
        return [...disk.calls.slice(before).entries()].filter(([, call]) => !readingCall.test(call));
      });
      const telling = tellingCalls(calls, ([, call]) => call, { ends: true });
      const publishing = telling.findIndex(([, call]) => newVersion.test(call));
      const isTried = (index: number): boolean =>
        torture || Math.abs(index - publishing) < 4 || index % 9 === what.length % 9;
      const failures = await failuresOf(
        telling.filter((_, index) => isTried(index)),
        { limit: 3, name: ([at, call]) => `${at} ${call}` },
        async ([at]) => {
          await onDisk(async (disk, table) => {
            await planBefore(table, disk, plan);
            disk.faultAt(at, fault);
            await attempt(table, disk.fs, plan).catch(() => undefined);
            await (luck === undefined ? disk.kill() : disk.losePower(luck));
            expect([[], upTo(25)]).toContainEqual(await idsIn(table));
            await attempt(table, disk.fs, plan);
            expect(await idsIn(table)).toEqual(upTo(25));
          });
        },
      );
      expect(failures).toEqual([]);
    },
  );

  test("is refused where two writers could create the same one, before a run is planned", async () => {
    await using folder = await scratchFolder();
    const root = join(folder.path, "disk");
    await mkdir(root);
    const { fs } = lossyDisk(root, ["link"]);
    const refused = attempt(join(root, "table"), fs, planFor(target));
    await expect(refused).rejects.toMatchObject({ code: "USAGE", message: expect.stringContaining("no hard links") });
    await using sink = deltaSink(join(root, "table"), { fs });
    expect(await sink.find(planFor(target).runId)).toBeUndefined();
  });

  test("is not created where a run is resumed from a disk on which two writers could create the same one", async () => {
    const table = join(scratch.path, "table");
    await using sink = deltaSink(table);
    const { stored, run } = await begun(sink, planFor(target));
    await commitSpans(run, stored);
    const link = (): Promise<never> => Promise.reject(Object.assign(new Error("EPERM"), { code: "EPERM" }));
    await using other = deltaSink(table, { fs: { ...nodeFileSystem, link } });
    const resumed = await beginRun(other, await other.open(stored));
    await expect(resumed.finish()).rejects.toMatchObject({ code: "USAGE" });
    expect(await idsIn(table)).toEqual([]);
  });

  test("is created by one of many attempts that publish a run at once", async () => {
    const table = join(scratch.path, "table");
    await using sink = deltaSink(table);
    const { stored, run } = await begun(sink, planFor(target));
    await commitSpans(run, stored);
    const finishing = upTo(5).map(async () => {
      await using other = deltaSink(table);
      await (await beginRun(other, stored)).finish();
    });
    await Promise.all([run.finish(), ...finishing]);
    expect(await idsIn(table)).toEqual(upTo(25));
    expect(await readdir(join(table, "_delta_log"))).toHaveLength(1);
  });

  test("comes after those of other runs that are published meanwhile", async () => {
    const table = join(scratch.path, "table");
    const runs = upTo(5).map((index) => planFor(target, { runId: `job-00000000000${index}` }));
    await Promise.all(
      runs.map(async (plan) => {
        await using sink = deltaSink(table, { folder: join(table, "_infer-batch", plan.runId) });
        await carryOut(sink, plan);
      }),
    );
    expect(await idsIn(table)).toEqual(upTo(25).flatMap((id) => runs.map(() => id)));
  });

  test("does not name a file that an attempt has copied whose run was then scored anew", async () => {
    await onDisk(async (disk, table) => {
      const plan = planFor(target);
      disk.stopBefore(newVersion);
      await attempt(table, disk.fs, plan).catch(() => undefined);
      disk.kill();
      expect((await readdir(table)).filter((name) => name.endsWith(".parquet"))).not.toEqual([]);
      await rm(join(table, "_infer-batch"), { recursive: true });
      await using sink = deltaSink(table);
      const { stored, run } = await begun(sink, plan);
      for (let span = 0; span < spanCount(plan); span += 1) {
        await run.commit(spanAt(plan, span), whole(outputOf(idsOf(spanAt(plan, span)), () => 7)));
      }
      await run.finish();
      expect(stored.plan.runId).toBe(plan.runId);
      expect((await rowsOfDelta(table)).map(({ score }) => score)).toEqual(upTo(25).map(() => 7));
    });
  });

  /** Publishes a run that is held at a call, has another one come after it meanwhile, and lets it go on. */
  async function publishLate(
    table: string,
    heldAt: RegExp,
    meanwhile: (next: Plan) => Promise<void>,
  ): Promise<unknown> {
    const plan = planFor(target);
    const holds = Object.fromEntries(
      (["go", "arrive"] as const).map((name) => {
        let open = (): void => undefined;
        const opened = new Promise<void>((done) => {
          open = done;
        });
        return [name, { open, opened }];
      }),
    ) as Record<"go" | "arrive", { open: () => void; opened: Promise<void> }>;
    let isWhole = false;
    const fs = hookedDisk(table, {
      async before(_, call) {
        if (isWhole && heldAt.test(call)) {
          holds.arrive.open();
          await holds.go.opened;
        }
      },
    });
    await using slow = deltaSink(table, { fs });
    const { stored, run } = await begun(slow, plan);
    await commitSpans(run, stored);
    isWhole = true;
    const late = run.finish().catch((error: unknown) => error);
    await holds.arrive.opened; // it has found no later run
    await meanwhile({ ...plan, runId: numberedRunId(plan.runId, 2) });
    holds.go.open();
    return await late;
  }

  test.each([/^readdir .*_delta_log/, newVersion])(
    "is not created by an attempt that is at %s while a later run is published",
    async (call) => {
      const table = join(scratch.path, "table");
      const late = await publishLate(table, call, async (next) => {
        await using sink = deltaSink(table);
        await carryOut(sink, next);
      });
      expect(late).toMatchObject({ code: "PLAN_CHANGED", message: expect.stringContaining("-r2") });
      expect(await idsIn(table)).toEqual(upTo(25));
    },
  );

  test("is refused to a run after one that was published late", async () => {
    const table = join(scratch.path, "table");
    await using sink = deltaSink(table, { allowDuplicates: false });
    let next: StoredPlan | undefined;
    await publishLate(table, newVersion, async (plan) => {
      next = await sink.create(plan);
    });
    expect(await idsIn(table)).toEqual(upTo(25));
    const second = await beginRun(sink, next as StoredPlan);
    await commitSpans(second, next as StoredPlan);
    await expect(second.finish()).rejects.toMatchObject({
      code: "PLAN_CHANGED",
      hint: expect.stringContaining("delete"),
    });
    expect(await idsIn(table)).toEqual(upTo(25));
  });
});
