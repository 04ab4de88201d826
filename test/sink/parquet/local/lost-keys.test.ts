import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nextRunId } from "#src/plan/identity.js";
import type { Plan } from "#src/plan/plan.js";
import { spanAt } from "#src/plan/spans.js";
import { parseRunProfile } from "#src/publish/profile-text.js";
import { nodeFileSystem } from "#src/stores/disk.js";
import { layoutOf } from "#src/sink/parquet/layout.js";
import type { StoredPlan } from "#src/sink/port.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { scratch, scratchFolder } from "../../../support/job.js";
import { commitSealed, outputWith, wholeSealed } from "../../../support/sealed-spans.js";
import type { BegunRun } from "../../../support/sink-drive.js";
import { openDiskSink } from "../../../support/sink-options.js";
import { begun, idsOf } from "../../../support/sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";

/** A run whose first spans are committed, and an attempt that began after its key was removed. */
interface LostKey extends AsyncDisposable {
  readonly stored: StoredPlan;
  readonly run: BegunRun;
  readonly warnings: readonly string[];
  /** Names of keys in the output folder. */
  keys(): Promise<string[]>;
  /** The text of the profile that was published. */
  published(): Promise<string>;
}

async function lostKey(committed: readonly number[], facts: Partial<Plan> = {}): Promise<LostKey> {
  const own = await scratchFolder();
  const folder = join(own.path, "out");
  const warnings: string[] = [];
  const warn = (message: string): void => void warnings.push(message);
  const options = { folder, fs: nodeFileSystem, isDead: () => false, warn };
  await using sink = openDiskSink({ ...options, writer: "first" });
  const other = openDiskSink({ ...options, writer: "second" });
  const { stored, run } = await begun(sink, { ...stagedPlan(sink.planTarget), ...facts });
  const { profile, profileKey } = layoutOf(folder, stored.plan.runId);
  await commitSealed(run, stored, committed);
  await rm(profileKey);
  return {
    stored,
    run: (await begun(other, stored.plan)).run,
    warnings,
    keys: async () => (await readdir(folder, { recursive: true })).filter((name) => name.includes("profile.key")),
    published: () => readFile(profile, "utf8"),
    async [Symbol.asyncDispose]() {
      await other[Symbol.asyncDispose]();
      await own[Symbol.asyncDispose]();
    },
  };
}

const lost =
  /^reading the profiles of run \S+: the key of its features, .*profile\.key, is gone or is another one; .* published without their profiles$/;

test("a run that may be held and has lost its key is refused at the next span, and gets no other key", async () => {
  await using found = await lostKey([0]);
  const span = spanAt(found.stored.plan, 1);
  await expect(found.run.commit(span, outputWith(idsOf(span)))).rejects.toMatchObject({
    code: "OUTPUT_DAMAGED",
    message: expect.stringMatching(/the key of its features, .*profile\.key, is gone or is another one$/) as string,
    hint: "restore it, or score again with --new-run",
    damage: { runId: found.stored.plan.runId },
  });
  expect(await found.keys()).toEqual([]);
  expect(found.warnings).toEqual([]);
});

test.each([{ committed: [0] }, { committed: [0, 1, 2] }])(
  "a run that cannot be held and has lost its key after spans $committed is published without features, with one warning",
  async ({ committed }) => {
    await using found = await lostKey(committed, { staged: false });
    const { stored, run } = found;
    await commitSealed(
      run,
      stored,
      [0, 1, 2].filter((span) => !committed.includes(span)),
    );
    expect((await run.profile()).profile).toEqual({ ...wholeSealed, features: undefined, isSealed: true });
    await run.judge(verdictOf("publish"));
    await run.finish();
    expect(found.warnings).toEqual([expect.stringMatching(lost)]);
    expect(await found.keys()).toEqual([]);
    const profile = parseRunProfile(await found.published());
    expect([profile?.rows, profile?.features.size]).toEqual([wholeSealed.rows, 0]);
  },
);

test("a run that was approved and has lost its key is published without features, with one warning", async () => {
  await using found = await lostKey([0, 1, 2]);
  const { run } = found;
  await run.judge(verdictOf("hold"));
  await expect(run.profile()).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
  await run.decide(decisionOf("approved"));
  await run.finish();
  expect(found.warnings).toEqual([expect.stringMatching(lost)]);
  expect(parseRunProfile(await found.published())?.features.size).toBe(0);
});

test("a span whose key could not be made is committed when that is tried again", async () => {
  const failures = [Object.assign(new Error("EIO: i/o error"), { code: "EIO" })];
  const fs = hookedDisk(scratch.path, {
    before: async (_, call) => {
      const failure = /^link .*profile/.test(call) ? failures.pop() : undefined;
      await (failure === undefined ? undefined : Promise.reject(failure));
    },
  });
  await using sink = openDiskSink({
    folder: scratch.path,
    fs,
    writer: "first",
    isDead: () => false,
  });
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
  await expect(commitSealed(run, stored, [0])).rejects.toMatchObject({ code: "DISK" });
  await commitSealed(run, stored, [0, 1, 2]);
  expect((await (await sink.open(stored)).profile()).profile).toEqual(wholeSealed);
});

test("a file that is no key, in the place of the key of a run, is reported, and nothing is committed", async () => {
  const folder = join(scratch.path, "out");
  const options = { folder, fs: nodeFileSystem, writer: "first", isDead: () => false };
  await using sink = openDiskSink(options);
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
  await writeFile(layoutOf(folder, stored.plan.runId).profileKey, "no key");
  await expect(commitSealed(run, stored, [0])).rejects.toMatchObject({
    code: "OUTPUT_DAMAGED",
    message: expect.stringMatching(
      /^writing .*profile\.key: it is gone since it was written, or is not a key/,
    ) as string,
    hint: expect.stringContaining(
      "something else changes files here; remove it, and run the same command again",
    ) as string,
    damage: { runId: stored.plan.runId },
  });
  expect([...(await sink.open(stored)).committed]).toEqual([0, 0, 0]);
});

test("an attempt that goes on when its run was published warns of no lost key", async () => {
  const warnings: string[] = [];
  const warn = (message: string): void => void warnings.push(message);
  const options = { folder: scratch.path, fs: nodeFileSystem, isDead: () => false, warn };
  await using sink = openDiskSink({ ...options, writer: "first" });
  await using other = openDiskSink({ ...options, writer: "second" });
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
  await commitSealed(run, stored, [0]);
  const late = await begun(other, stored.plan);
  await commitSealed(run, stored, [1, 2]);
  await run.judge(verdictOf("publish"));
  await run.decide(decisionOf("approved"));
  await run.finish();
  await commitSealed(late.run, stored, [1, 2]);
  await late.run.finish();
  expect(warnings).toEqual([]);
});

test.each(["its key is removed", "its parts are removed"])(
  "an attempt of a run that a later one has replaced says so, and not that the run is damaged, when %s",
  async (found) => {
    const options = { folder: scratch.path, fs: nodeFileSystem, isDead: () => false };
    await using sink = openDiskSink({ ...options, writer: "first" });
    await using other = openDiskSink({ ...options, writer: "second" });
    const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSealed(run, stored, [0]);
    const late = await begun(other, stored.plan);
    await commitSealed(late.run, stored, [1, 2]);
    const next = { ...stored.plan, runId: nextRunId(stored.plan.runId) };
    await (found === "its parts are removed" ? begun(sink, next) : sink.create(next));
    await rm(layoutOf(scratch.path, stored.plan.runId).profileKey, { force: true });
    await expect(late.run.profile()).rejects.toMatchObject({ code: "PLAN_CHANGED" });
  },
);

test.each([
  ["gone", (path: string): Promise<void> => rm(path)],
  [
    "another one",
    async (path: string): Promise<void> => writeFile(path, (await readFile(path, "utf8")).replace("Rome", "Bonn")),
  ],
])(
  "a published run whose stored profile is %s is damaged, as no key opens those of its spans",
  async (_how, change) => {
    const options = { folder: scratch.path, fs: nodeFileSystem, isDead: () => false };
    await using sink = openDiskSink({ ...options, writer: "first" });
    const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
    await commitSealed(run, stored, [0, 1, 2]);
    await run.judge(verdictOf("publish"));
    await run.decide(decisionOf("approved"));
    await run.finish();
    await change(layoutOf(scratch.path, stored.plan.runId).profile);
    await expect((await sink.open(stored)).profile()).rejects.toMatchObject({
      code: "OUTPUT_DAMAGED",
      message: expect.stringMatching(/profile\.json: the profile of run \S+ is gone, or is another one/) as string,
    });
  },
);
