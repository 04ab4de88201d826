import { cp, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, type Night, nightAt, nightlyJob, type NightSeen, seenBy } from "../support/nights.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { watchCommand } from "../support/watched.js";
import { expectEnd } from "../support/cli.js";

const date = "2026-11-21";
const rounds = torture ? 60 : 1;

/** A held night with too few rows; the spec no longer leaves any out, so that a new run passes. */
async function heldNight(folder: string): Promise<Night> {
  const nights = await nightlyJob(folder);
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  await nights.rewrite(fewRows);
  await expectEnd(nights.night("run", date), 67);
  await nights.rewrite({});
  return nightAt(folder, date);
}

/** The decision on each run, by run id; undefined: there is none. */
async function decisions({ out }: Night): Promise<Map<string, string | undefined>> {
  const control = join(out, "_infer-batch");
  const runs = (await readdir(control)).filter((name) => name !== "run.json").toSorted();
  const found = runs.map(async (run) => {
    const text = await readFile(join(control, run, "decision.json"), "utf8").catch(() => undefined);
    return [run, text === undefined ? undefined : (JSON.parse(text) as { kind: string }).kind] as const;
  });
  return new Map(await Promise.all(found));
}

test(`approve, discard, a new run and a plain run that race for a held run agree on one decision (${rounds} rounds)`, {
  timeout: 900_000,
}, async () => {
  const first = join(scratch.path, "first");
  await mkdir(first);
  await heldNight(first);
  const [runId = ""] = (await decisions(nightAt(first, date))).keys();
  const seen: NightSeen[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    const folder = join(scratch.path, `round-${round}`);
    await cp(first, folder, { recursive: true });
    const night = nightAt(folder, date);
    const random = randomOf(round);
    const stop = { now: false };
    const reading = (async () => {
      while (!stop.now) {
        seen.push(await seenBy(night.out));
        await sleep(torture ? 1 : 15);
      }
    })();
    const racers: [string, ...string[]][] = [
      ["approve", "--run", runId],
      ["discard", "--run", runId],
      ["run", "--new-run"],
      ["run"],
    ];
    const results = await Promise.all(
      racers.map(async (command) => {
        await sleep(random() * 400);
        return await watchCommand(night.args(...command), { CRASH_ROOT: night.out, CRASH_PAUSE: "3" });
      }),
    );
    stop.now = true;
    await reading;
    const told = results.map(({ code, stderr }, index) => `${racers[index]?.join(" ")}: ${code}\n${stderr}`).join("\n");
    expect(
      results.filter(({ code }) => ![0, 66, 67].includes(code ?? -1)),
      told,
    ).toEqual([]);
    const decided = (await decisions(night)).get(runId);
    const codes = results.map(({ code }) => code);
    // A new run that finds the run published may supersede the approval that is still clearing up.
    expect(decided === "approved" ? [0, 66] : [66], told).toContain(codes[0]);
    const end = lastJson(await night.run("run", "--json"));
    const now = `${told}\nin the end: ${JSON.stringify(end)}`;
    if (decided === "approved" && end["run_id"] === runId) {
      expect([await seenBy(night.out), end["status"]], now).toEqual(["new", "already_complete"]);
    } else if (end["run_id"] === runId) {
      expect([await seenBy(night.out), end["status"], decided], now).toEqual(["nothing", "discarded", "discarded"]);
    } else {
      expect([await seenBy(night.out), end["status"]], now).toEqual(["old", "already_complete"]);
    }
  }
  expect(seen.filter((one) => typeof one !== "string")).toEqual([]);
});

test("a new run publishes an approved run that is not yet published, and then replaces it", async () => {
  const night = await heldNight(scratch.path);
  const env = { CRASH_ROOT: night.out, CRASH_AT: "after link control/decision.json #1" };
  const killed = await watchCommand(night.args("approve"), env);
  expect(killed.signal, killed.stderr).toBe("SIGKILL");
  expect(await seenBy(night.out)).toBe("nothing");
  const next = await night.run("run", "--new-run", "--json");
  expect([next.code, lastJson(next)], next.stderr).toMatchObject([
    0,
    { run_id: expect.stringMatching(/-r2$/), status: "complete", rows_scored: 442 },
  ]);
  expect(await seenBy(night.out)).toBe("old");
  expect([...(await decisions(night)).values()]).toEqual(["approved", "approved"]);
});

const late = [
  { decide: "approve", code: 0, status: "complete", end: "new" },
  { decide: "discard", code: 67, status: "discarded", end: "nothing" },
] as const;

test.each(late)(
  "a worker that is still working when its run is held and a person says $decide changes nothing of that",
  { timeout: 120_000 },
  async ({ decide, code, status, end }) => {
    const nights = await nightlyJob(scratch.path);
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    await nights.rewrite(fewRows);
    const night = nightAt(scratch.path, date);
    const held = join(scratch.path, "held");
    const env = { CRASH_ROOT: night.out, CRASH_AT: "hold link control/parts/part-00004 #1", CRASH_HOLD: held };
    const worker = watchCommand(night.args("run", "--json"), env);
    await until(() => existsSync(held));
    await expectEnd(night.run("run"), 67);
    await expectEnd(night.run(decide), 0);
    await rm(held);
    const ended = await worker;
    expect([ended.code, lastJson(ended)["status"]], ended.stderr).toEqual([code, status]);
    expect(await seenBy(night.out)).toBe(end);
    expect(await leftOf(night)).toEqual([]);
  },
);

/** How many workers there are, and before which span one of them stands still. */
const discarding = [
  { workers: 1, span: 4 },
  { workers: 2, span: 1 },
] as const;

test.each(discarding)(
  "one of $workers workers, about to commit span $span when a person discards its unfinished run, ends with 67 and leaves nothing",
  async ({ workers, span }) => {
    await nightlyJob(scratch.path);
    const night = nightAt(scratch.path, date);
    const held = join(scratch.path, "held");
    const env = { CRASH_ROOT: night.out, CRASH_AT: `hold link control/parts/part-0000${span} #1`, CRASH_HOLD: held };
    const worker = watchCommand(night.args("run", "--worker", `0/${workers}`, "--json"), env);
    await until(() => existsSync(held));
    if (workers > 1) {
      expect(lastJson(await night.run("run", "--worker", "1/2", "--json"))["status"]).toBe("partial");
    }
    expect((await leftOf(night)).length).toBeGreaterThan(workers);
    await expectEnd(night.run("discard"), 0);
    await rm(held);
    const ended = await worker;
    expect([ended.code, lastJson(ended)["status"]], ended.stderr).toEqual([67, "discarded"]);
    expect(await leftOf(night)).toEqual([]);
  },
);

/** Rows in the control folder. */
async function leftOf({ out }: Night): Promise<string[]> {
  const names = await readdir(join(out, "_infer-batch"), { recursive: true });
  return names.filter((name) => name.endsWith(".staged"));
}
