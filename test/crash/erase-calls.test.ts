import { cp, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch } from "../support/job.js";
import { nightAt, type Night, nightlyJob, publishedRun } from "../support/nights.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import { torture } from "../support/torture.js";
import { callsOf, type Kill, killsAt, killsOrCopies, leftAt, watchCommand } from "../support/watched.js";

const date = "2026-01-01";
const erased = [5, 441];

/** The rows that a reader finds who follows `_SUCCESS`: all, those without the erased ones, or none. */
async function seenBy({ out }: Night): Promise<"all" | "erased" | "nothing" | readonly number[]> {
  const before = await publishedRun(out);
  const rows = before === undefined ? [] : await outputRows(out);
  if (before === undefined) {
    return "nothing";
  }
  const ids = rows.map(({ id }) => Number(id));
  const left = erased.filter((id) => ids.includes(id)).length;
  return new Set(ids).size === ids.length && ids.length === 440 + left && left !== 1
    ? left === 0
      ? "erased"
      : "all"
    : ids;
}

test("erase that is killed at any durable call is ended by the same command, and readers see all rows or those that stay", {
  timeout: 900_000,
}, async () => {
  const first = join(scratch.path, "first");
  await mkdir(first);
  await nightlyJob(first, { commit_rows: torture ? 100 : 240 });
  await writeFile(join(first, "keys.txt"), erased.join("\n"));
  await expectEnd(nightAt(first, date).run("run"), 0);
  const copied = async (name: string): Promise<{ readonly night: Night; readonly args: readonly string[] }> => {
    const folder = join(scratch.path, name);
    await cp(first, folder, { recursive: true });
    return {
      night: nightAt(folder, date),
      args: ["erase", join(folder, "job.yaml"), "--keys", join(folder, "keys.txt")],
    };
  };
  const whole = await copied("whole");
  const copies = join(scratch.path, "copies");
  const calls = await callsOf(scratch.path, whole.night.out, (env) => watchCommand(whole.args, env), { copies });
  const all = killsAt(calls);
  const moments = all.filter((_, index) => torture || (all.length - 1 - index) % 9 === 0); // the last one is after the swap
  expect(moments.length).toBeGreaterThan(3);
  console.info(`erase: ${moments.length} kills`);

  const seen = new Set<unknown>();
  const how = { limit: 2, name: ({ moment }: Kill) => `killed ${moment}` };
  const failures = await failuresOf(killsOrCopies(moments, copies), how, async (kill, index) => {
    const { night, args } = await copied(`kill-${index}`);
    await leftAt(kill, night.out, (env) => watchCommand(args, env));
    const left = await seenBy(night);
    expect(["all", "erased", "nothing"]).toContain(left);
    seen.add(left);
    const plan = await night.run("plan");
    const run = await night.run("run"); // a scheduler may come first: it finishes a swap, and scores no row again
    expect([0, 67], run.stderr).toContain(run.code);
    expect(plan.code, plan.stderr).toBe(run.code);
    await expectEnd(runHere(args), 0);
    expect(await seenBy(night)).toBe("erased");
    expect(await faultsOfFinished(night.out, 440)).toEqual([]);
    const names = await readdir(night.out, { recursive: true });
    expect(names.filter((name) => /\/(tmp|parts|withdrawn)\/|-r2.*-r2/.test(name))).toEqual([]);
    expect((await night.run("run")).stdout).toContain("already complete");
  });
  expect(failures).toEqual([]);
  expect(seen).toEqual(new Set(["all", "nothing", "erased"]));
});

test("erasures and a new run at the same time leave a whole run; each is carried on or refused, and repeated erases its keys", {
  timeout: 900_000,
}, async () => {
  await nightlyJob(scratch.path, { commit_rows: 100, checks: undefined });
  const night = nightAt(scratch.path, date);
  await expectEnd(night.run("run"), 0);
  const erasures: string[][] = [];
  for (const key of erased) {
    const keys = join(scratch.path, `key-${key}.txt`);
    await writeFile(keys, String(key));
    erasures.push(["erase", join(scratch.path, "job.yaml"), "--keys", keys]);
  }
  for (let round = 0; round < (torture ? 20 : 1); round += 1) {
    const all = [...erasures, night.args("run", "--new-run")];
    const ended = await Promise.all(all.map((args) => runCli(args)));
    for (const { code, stderr } of ended) {
      expect([0, 66, 67], stderr).toContain(code);
    }
    for (const { code, stderr } of ended.slice(0, 2)) {
      expect(code === 0 || /run the same command again|infer-batch (run|erase)/.test(stderr), stderr).toBe(true);
    }
    const left = await seenBy(night);
    expect(
      left === "nothing" || left === "all" || left === "erased" || (left.length >= 440 && left.length <= 442),
      String(left),
    ).toBe(true);
    await night.run("run"); // finishes a new run that was superseded or not finished
    for (const args of erasures) {
      await expectEnd(runHere(args), 0);
    }
    expect(await seenBy(night)).toBe("erased");
    expect(await faultsOfFinished(night.out, 440)).toEqual([]);
    expect((await night.run("run")).stdout).toContain("already complete");
  }
});
