import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { rowFinders } from "#src/cli/commands/erase.js";
import { openJob } from "#src/job/open.js";
import { sha256Of } from "#src/base/sha256.js";
import { runIdOf } from "#src/run/plan/identity.js";
import { approveErasure } from "#src/run/conclude.js";
import { eraseRows } from "#src/run/erase.js";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { holdCommand } from "../support/faulty.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { fewRows, lastJson, nightAt, type Night, type Nights, nightlyJob } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { watchCommand } from "../support/watched.js";
import { firstOf } from "../support/torture.js";

const date = "2026-01-01";
const key = 5;
/** The call that commits an erasure's last span, and the one that approves the erasure. */
const [lastSpan, decision] = ["link control/parts/part-00001 #1", "link control/decision.json #1"];

interface Erasing {
  readonly folder: string;
  readonly nights: Nights;
  readonly night: Night;
  readonly erase: readonly string[];
}

/** Publishes a night of 442 rows. */
async function published(folder: string, overrides: SpecOverrides = {}): Promise<Erasing> {
  const nights = await nightlyJob(folder, { commit_rows: 240, ...overrides });
  const night = nightAt(folder, date);
  await expectEnd(night.run("run"), 0);
  const keys = join(folder, "keys.txt");
  await writeFile(keys, String(key));
  return { folder, nights, night, erase: ["erase", join(folder, "job.yaml"), "--keys", keys, "--key", "id"] };
}

/** Publishes an earlier date, and then scores too few rows of the published date, which the checks hold. */
async function heldAgain({ folder, night, nights }: Erasing): Promise<void> {
  await expectEnd(nightAt(folder, "2025-12-31").run("run"), 0);
  await nights.rewrite(fewRows);
  await expectEnd(night.run("run", "--new-run"), 67);
}

async function killedBefore(call: string, { night, erase }: Erasing): Promise<void> {
  const killed = await watchCommand(erase, { CRASH_ROOT: night.out, CRASH_AT: `before ${call}` });
  expect(killed.signal, killed.stderr).toBe("SIGKILL");
}

async function idsOf({ out }: Night): Promise<number[]> {
  return (await outputRows(out)).map(({ id }) => Number(id));
}

async function expectErased({ night, erase }: Erasing): Promise<void> {
  const again = await runHere(erase);
  expect(again.code, again.stdout + again.stderr).toBe(0);
  const ids = await idsOf(night);
  expect([ids.length, ids.includes(key)]).toEqual([441, false]);
}

/** Expects that a new run publishes all rows of the input. */
async function expectScoredAgain({ night }: Erasing): Promise<void> {
  const next = await night.run("run", "--new-run", "--json");
  expect([next.code, lastJson(next)["rows_scored"]], next.stderr).toEqual([0, 442]);
  const ids = await idsOf(night);
  expect([ids.length, new Set(ids).size]).toEqual([442, 442]);
}

/** Removes the last part of a run from the staging folder or the output folder. */
async function losePart({ night }: Erasing, run: RegExp): Promise<void> {
  const names = (await readdir(night.out, { recursive: true })).filter((name) => /part-00001\./.test(name));
  const name = names.find((one) => run.test(one));
  expect(name, names.join()).toBeDefined();
  await rm(join(night.out, name ?? ""));
}

test("an erasure looks for the published run behind several that are not published", async () => {
  const erasing = await published(scratch.path);
  await killedBefore(lastSpan, erasing);
  await killedBefore(lastSpan, erasing);
  await expectEnd(erasing.night.run("run"), 67, "--new-run");
  expect((await erasing.night.run("status")).stdout).toContain("the same infer-batch erase again");
  await expectEnd(nightAt(scratch.path, "2025-12-31").run("run"), 0, "the same infer-batch erase again");
  await expectErased(erasing);
});

test("an erasure of a date whose last two new runs were held, and the last discarded, erases rows of the published one", async () => {
  const erasing = await published(scratch.path);
  const { night } = erasing;
  await heldAgain(erasing);
  await expectEnd(night.run("run", "--new-run"), 67);
  await expectEnd(night.run("discard"), 0);
  await expectErased(erasing);
});

test("an erasure finds the published run behind a discarded run and a run without checks that was killed", async () => {
  const erasing = await published(scratch.path);
  const { night, nights } = erasing;
  await expectEnd(nightAt(scratch.path, "2025-12-31").run("run"), 0);
  await nights.rewrite({ checks: undefined });
  const killed = await watchCommand(night.args("run", "--new-run"), {
    CRASH_ROOT: night.out,
    CRASH_AT: "before link control/parts/part-00001 #1",
  });
  expect(killed.signal, killed.stderr).toBe("SIGKILL");
  await nights.rewrite({ checks: {}, ...fewRows });
  await expectEnd(night.run("run", "--new-run"), 67);
  await expectEnd(night.run("discard"), 0);
  await expectErased(erasing);
});

test.each(firstOf([decision, lastSpan]))(
  "an erasure that was killed before %s and discarded gives way to a new run and to another erasure",
  async (call) => {
    const erasing = await published(scratch.path);
    const { night } = erasing;
    await killedBefore(call, erasing);
    await expectEnd(night.run("discard"), 0);
    await expectEnd(night.run("run"), 67, "--new-run");
    await expectScoredAgain(erasing);
    await killedBefore(call, erasing);
    await expectEnd(night.run("discard"), 0);
    await expectErased(erasing);
  },
);

test("an unfinished erasure gives way to a new run", async () => {
  const erasing = await published(scratch.path);
  await killedBefore(lastSpan, erasing);
  await expectScoredAgain(erasing);
  await expectErased(erasing);
});

test.each([
  { of: "an approved erasure", call: "link part-00000 #1", run: /-r2\.staged$/, code: 66 },
  { of: "the run whose rows an unfinished erasure copies", call: lastSpan, run: /[0-9a-f]\.parquet$/, code: 67 },
])("after the loss of a part of $of, all commands name --new-run, which scores again", async ({ call, run, code }) => {
  const erasing = await published(scratch.path);
  const { night, erase } = erasing;
  await killedBefore(call, erasing);
  await losePart(erasing, run);
  const again = await runHere(erase);
  expect([again.code, again.stdout + again.stderr]).toEqual([67, expect.stringContaining("--new-run")]);
  await expectEnd(night.run("run"), code, "--new-run");
  await expectScoredAgain(erasing);
});

test("run publishes the complete erasure of a run that a person approved against its checks", async () => {
  const erasing = await published(scratch.path);
  const { night } = erasing;
  await heldAgain(erasing);
  await expectEnd(night.run("approve"), 0);
  await killedBefore("link control/decision.json #1", erasing);
  await expectEnd(night.run("plan"), 0);
  await expectEnd(night.run("run"), 0);
  const ids = await idsOf(night);
  expect([ids.length, ids.includes(key)]).toEqual([49, false]);
});

test("run that publishes an erasure leaves no key in the verdict on the run before it", async () => {
  const features = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"];
  const erasing = await published(scratch.path, {
    checks: { unique: ["age"], on_fail: "warn" },
    output: { parquet: { path: "out/dt=${ds}" }, columns: ["id", "age"] },
    model: { inputs: { features } },
  });
  const verdicts = async (): Promise<string> => {
    const names = (await readdir(erasing.night.out, { recursive: true })).filter((name) =>
      name.endsWith("verdict.json"),
    );
    return (await Promise.all(names.map((name) => readFile(join(erasing.night.out, name), "utf8")))).join();
  };
  expect(await verdicts()).toContain('"examples"');
  await killedBefore(decision, erasing);
  await expectEnd(erasing.night.run("run"), 0);
  expect(await verdicts()).not.toContain('"examples"');
});

/** Lets an erasure stand before a call while `meanwhile` changes what it works on; returns how it ends. */
async function changedBefore(
  call: string,
  { folder, night, erase }: Erasing,
  meanwhile: () => Promise<void>,
): Promise<CliResult> {
  const stands = await holdCommand(erase, { out: night.out, call, held: join(folder, "held") });
  await meanwhile();
  return await stands.release();
}

test("an erasure that cannot write names what failed, and not its own run", async () => {
  const erasing = await published(scratch.path);
  const { night } = erasing;
  const ended = await expectEnd(
    changedBefore(lastSpan, erasing, async () => {
      const run = (await readdir(join(night.out, "_infer-batch"))).find((name) => name.endsWith("-r2")) ?? "";
      const parts = join(night.out, "_infer-batch", run, "parts");
      await rm(parts, { recursive: true });
      await writeFile(parts, "");
    }),
    67,
  );
  expect(ended.stdout).toContain("is a file (ENOTDIR)");
  expect(ended.stdout + ended.stderr).not.toContain("planned meanwhile");
});

test("a date whose erasure a person discards does not keep rows of other dates from being erased", async () => {
  const erasing = await published(scratch.path);
  const other = nightAt(scratch.path, "2025-12-31");
  await expectEnd(other.run("run"), 0);
  expect(
    (
      await expectEnd(
        changedBefore(decision, erasing, async () => {
          await expectEnd(erasing.night.run("discard"), 0);
        }),
        67,
      )
    ).stdout,
  ).toContain("it was discarded by");
  expect((await idsOf(erasing.night)).length).toBe(442);
  expect((await idsOf(other)).includes(key)).toBe(false);
  await expectErased(erasing);
});

test("an erasure whose rows are replaced by another one, while it reads them, says to run it again", async () => {
  const erasing = await published(scratch.path);
  await killedBefore(lastSpan, erasing);
  const { folder, night } = erasing;
  const keys = { columns: ["id"], keys: [[String(key + 1)]], placeOf: () => "the key" };
  const found = new Set<number>();
  const openFinder = rowFinders(keys, { memoryBytes: 2 ** 28, found });
  const openHere = (): ReturnType<typeof openJob> => openJob(join(folder, "job.yaml"), { param: [`ds=${date}`] });
  await using opened = await openHere();

  const [run] = await eraseRows(opened, {
    keys,
    dryRun: false,
    found,
    paramsOfTable: () => undefined,
    openJob: openHere,
    async openFinder(of, types) {
      // The other one goes on, and has removed a part of its source by now.
      const { job, sink } = opened;
      const stored = (await sink.find(runIdOf(job.spec.name, job.spec.params, sha256Of))) ?? expect.fail("no run");
      await approveErasure(sink, await sink.open(stored));
      for (const name of await readdir(night.out)) {
        await (name.startsWith("part-00001.") ? rm(join(night.out, name)) : undefined);
      }
      return await openFinder(of, types);
    },
  });

  expect(run?.retained).toMatch(/of another erasure, has replaced it: run the same command again$/);
});
