import { expect, test } from "vitest";
import { type ComparedDay, earlierThan, judge, judgeDay } from "#src/checks/checks.js";
import { defaultLimits, type Verdict } from "#src/checks/check.js";
import { noRows } from "#src/checks/profile/profile.js";
import { JobError } from "#src/base/errors.js";
import { storeLink } from "#src/run/chain.js";
import { planDay, readDay, storeDay } from "#src/run/day.js";
import { byChecks, type Decision } from "#src/run/lifecycle/lifecycle.js";
import { runProfileOf } from "#src/run/lifecycle/profile-text.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import type { Ledger } from "#src/stores/ledger.js";
import type { RunSink } from "#src/targets/target.js";
import { memoryLedger } from "../support/memory-target.js";
import { numbersProfile } from "../support/run-profiles.js";

/** A chain whose runs are judged, and published or not, without rows that are scored. */
function chainOfRuns(timeZone = "UTC") {
  const chain = "hourly-0123456789ab" as RunId;
  const ledger = memoryLedger();
  let last = 0;

  interface Decided {
    /** What is decided on a run that is held. Default: a person approves it. */
    readonly held?: "approved" | "not normal" | "discarded";
    /** Whether the run reads all rows. Default: what is new. */
    readonly isWhole?: boolean;
    /** What the spec has for `checks`. Default: they hold a run. */
    readonly checks?: "hold" | "warn" | "none";
  }

  /** A run of these values at a time. Returns what holds it, and what its own rows alone would have said. */
  async function run(
    at: Date,
    values: readonly (number | null)[],
    { held = "approved", isWhole = last === 0, checks = "hold" }: Decided = {},
  ): Promise<{ readonly verdict: Verdict; readonly alone: Verdict; readonly day: ComparedDay | undefined }> {
    last += 1;
    const number = last;
    const link = { run: number, from: isWhole ? null : String(number - 1), to: String(number) };
    await storeLink(ledger, chain, link, { at: at.toISOString(), writer: "w" });
    const planned = isWhole ? undefined : await planDay(ledger, chain, { run: number, at, timeZone });
    const plan = {
      runId: `hourly-${String(number).padStart(12, "0")}`,
      params: { run: String(number) },
      dateParam: null,
      staged: checks === "hold",
      model: { uri: "m", sha256: "a" },
      checks: checks === "none" ? null : { baseline: [], day: planned },
    } as unknown as Plan;
    const profile = { ...noRows, rows: values.length, columns: new Map([["score", numbersProfile(values)]]) };
    const own = runProfileOf(plan, { profile, rejected: 0 });
    const day = planned && (await readDay(ledger, chain, planned, own));
    const judged = {
      run: own,
      earlier: earlierThan(own.date, []),
      limits: { ...defaultLimits, onFail: checks === "hold" ? checks : "warn" } as const,
    };
    const verdict = day === undefined ? judge(judged) : judgeDay(judged, day);
    const alone = judge({ ...judged, earlier: earlierThan(own.date, own.date === "" ? [] : sameHours(at)) });
    const isHeld = verdict.outcome === "hold";
    if (!isHeld || held !== "discarded") {
      const by = isHeld ? "ann" : byChecks;
      const decision: Decision = {
        kind: "approved",
        by,
        at: "",
        reason: null,
        asBaseline: !isHeld || held === "approved",
      };
      const state = { kind: "published" } as const;
      const stored = { plan, planId: "p", state, spans: new Map(), profile: async () => profile };
      const known = checks === "none" ? undefined : { verdict };
      const read = ({ name }: { readonly name: string }): unknown => (name === "decision" ? decision : known);
      const decisions = { ...ledger, read: async (_: RunId, kind: { readonly name: string }) => read(kind) } as Ledger;
      const wanted = { run: stored as unknown as RunSink, decisions };
      await storeDay(ledger, chain, { run: number, at: at.toISOString() }, wanted).catch(() => undefined); // it may be killed
      await storeDay(ledger, chain, { run: number, at: at.toISOString() }, wanted); // as each command does that looks for the next run
      published.push({ at, profile: own });
    }
    return { verdict, alone, day };
  }

  const published: { readonly at: Date; readonly profile: ReturnType<typeof runProfileOf> }[] = [];
  const sameHours = (time: Date) =>
    published
      .filter((each) => each.at.getUTCHours() === time.getUTCHours() && each.at < time)
      .map((each) => each.profile);
  return { run, ledger, notes: () => [...ledger.texts.keys()].filter((key) => key.endsWith(" day")).length };
}

function timeAt(day: number, hour: number, minute = 5): Date {
  return new Date(Date.UTC(2026, 10, 1 + day, hour, minute));
}

function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Rows of an hour: at noon there are five times as many as at night, with higher values; a share of them is NULL. */
function hourly(random: () => number, hour: number, nulls = 0): (number | null)[] {
  const noon = 1 - Math.abs(hour - 12) / 12;
  const rows = Math.round((15 + 60 * noon) * (0.9 + 0.2 * random()));
  return Array.from({ length: rows }, () =>
    random() < nulls ? null : 20 + 60 * noon + 25 * (random() + random() + random() - 1.5),
  );
}

const holds = ({ results }: Verdict): string[] =>
  results.filter(({ level }) => level === "hold").map(({ check }) => check);

type Chain = ReturnType<typeof chainOfRuns>;

/** Days of good runs, from a day on: none is held. */
async function goodDays(chain: Chain, [from, to]: readonly [number, number], random: () => number, hours = 24) {
  for (let day = from; day < to; day += 1) {
    for (let hour = 0; hour < 24; hour += 24 / hours) {
      const { verdict } = await chain.run(timeAt(day, hour), hourly(random, hour));
      expect(holds(verdict), `day ${day}, ${hour} h`).toEqual([]);
    }
  }
}

async function heldHours(
  chain: Chain,
  day: number,
  values: (hour: number) => (number | null)[],
  { hours = 24, ...decided }: Parameters<Chain["run"]>[2] & { readonly hours?: number } = {},
): Promise<number[]> {
  const held: number[] = [];
  for (let hour = 0; hour < 24; hour += 24 / hours) {
    const { verdict } = await chain.run(timeAt(day, hour), values(hour), decided);
    held.push(...(verdict.outcome === "hold" ? [hour] : []));
  }
  return held;
}

test("no good day of 20 is held, though its hours differ; a fault of a few rows of each run is, within its day", async () => {
  const random = randomNumbers(1);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 22], random);
  const read = chain.ledger.counted.reads;
  const { day } = await chain.run(timeAt(22, 0), hourly(random, 0));
  expect(day?.earlier).toHaveLength(21); // all but the first, which begins with all rows
  expect(chain.ledger.counted.reads - read).toBeLessThan(10 * 22);

  let [held, isNew] = [0, false];
  for (let hour = 1; hour < 24; hour += 1) {
    const { verdict, alone } = await chain.run(timeAt(22, hour), hourly(random, hour, 0.15));
    held += verdict.outcome === "hold" ? 1 : 0;
    isNew ||= held === 0 && verdict.results.some(({ lowered }) => lowered?.includes("doubled"));
    expect(holds(alone)).toEqual([]);
  }
  expect({ held, isNew }).toEqual({ held: 1, isNew: true });
}, 120_000);

test("a run that is approved is not held again that day, nor the next day like it; the fault of another is", async () => {
  const random = randomNumbers(2);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 16], random, 6);
  const campaign = (hour: number): (number | null)[] => [...hourly(random, hour), ...hourly(random, hour)];
  expect(await heldHours(chain, 16, campaign, { hours: 6 })).toHaveLength(1);
  expect(await heldHours(chain, 17, campaign, { hours: 6 })).toEqual([]);
  await goodDays(chain, [18, 20], random, 6);
  expect(await heldHours(chain, 20, (hour) => hourly(random, hour, 0.4), { hours: 6 })).toHaveLength(1);
});

test("after a run that is not normal nothing of its day is compared, and no later day is compared with it", async () => {
  const random = randomNumbers(3);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 16], random, 12);
  for (const day of [16, 17]) {
    const spoiled = (hour: number): (number | null)[] => hourly(random, hour, 0.4);
    expect(await heldHours(chain, day, spoiled, { hours: 12, held: "not normal" })).toHaveLength(1);
  }
  await goodDays(chain, [18, 19], random, 12);
});

test("a discarded run is no part of its day, whose published rows are: what is still wrong is held again", async () => {
  const random = randomNumbers(4);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 16], random, 12);
  let rows = 0;
  let hour = 0;
  for (let isHeld = false; !isHeld; hour += 2) {
    const values = hourly(random, hour, 0.3);
    const { verdict } = await chain.run(timeAt(16, hour), values, { held: "discarded" });
    isHeld = verdict.outcome === "hold";
    rows += isHeld ? 0 : values.length;
  }
  const values = hourly(random, hour, 0.3);
  const again = await chain.run(timeAt(16, hour), values, { held: "discarded" });
  expect(holds(again.verdict)).toContain("nulls");
  expect(again.day?.run.rows).toBe(rows + values.length);
});

test("a day that begins late, or with all rows, is compared with nothing", async () => {
  const random = randomNumbers(5);
  const chain = chainOfRuns();
  const whole = Array.from({ length: 50 }, () => hourly(random, 12)).flat();
  await chain.run(timeAt(0, 14), whole);
  const second = await chain.run(timeAt(0, 15), hourly(random, 15));
  expect(second.day).toMatchObject({ earlier: [], run: { rows: second.day?.run.rows } });
  const known: number[] = [];
  for (let day = 1; day < 5; day += 1) {
    for (let hour = 0; hour < 24; hour += 1) {
      const { day: compared, verdict } = await chain.run(timeAt(day, hour), hourly(random, hour));
      expect(holds(verdict)).toEqual([]);
      known.push(...(hour === 16 ? [compared?.earlier.length ?? -1] : []));
    }
  }
  expect(known).toEqual([0, 0, 1, 2]);

  await chain.run(timeAt(5, 0), hourly(random, 0));
  await chain.run(timeAt(5, 1), whole, { isWhole: true });
  const later = await chain.run(timeAt(5, 2), hourly(random, 2));
  expect(later.day).toMatchObject({ earlier: [] });
  expect(later.day?.run.rows).toBeLessThan(100);
});

test("with a run a day, the second day of a fault holds its run, and another fault warns first", async () => {
  const random = randomNumbers(6);
  const chain = chainOfRuns();
  const daily = (nulls = 0): (number | null)[] => [12, 13, 14, 15].flatMap((hour) => hourly(random, hour, nulls));
  const outcomeAt = async (time: Date, values: (number | null)[], decided?: { readonly held: "discarded" }) =>
    (await chain.run(time, values, decided)).verdict.outcome;
  for (let day = 0; day < 16; day += 1) {
    expect(await outcomeAt(timeAt(day, 8), daily())).toBe("publish");
  }
  expect(await outcomeAt(timeAt(16, 8), [...daily(), ...daily()])).toBe("publish");
  expect(await outcomeAt(timeAt(17, 8), daily(0.4))).toBe("publish");
  expect(await outcomeAt(timeAt(18, 8), daily(0.4), { held: "discarded" }), "as the day before").toBe("hold");
  expect(await outcomeAt(timeAt(18, 8, 35), daily(0.4)), "its rows again").toBe("hold");
  expect(await outcomeAt(timeAt(19, 8), daily(0.4)), "as an approved day").toBe("publish");
  expect(await outcomeAt(timeAt(20, 8), daily())).toBe("publish");
});

test("a run without checks ends the sum: no hours are missing in it once there are checks again", async () => {
  const random = randomNumbers(7);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 16], random, 12);
  for (let hour = 0; hour < 24; hour += 2) {
    const checks = hour > 2 && hour < 18 ? "none" : "hold";
    const { verdict, day } = await chain.run(timeAt(16, hour), hourly(random, hour), { checks });
    expect(holds(verdict), `${hour} h`).toEqual([]);
    expect(day?.earlier.length, `${hour} h`).toBe(hour <= 4 ? 15 : 0);
  }
  await goodDays(chain, [17, 18], random, 12);
});

test("runs without rows at the beginning of a day warn", async () => {
  const random = randomNumbers(8);
  const chain = chainOfRuns();
  await goodDays(chain, [0, 16], random);
  const levels: string[] = [];
  for (let hour = 0; hour < 3; hour += 1) {
    const { verdict } = await chain.run(timeAt(16, hour), []);
    levels.push(verdict.outcome, ...verdict.results.filter(({ check }) => check === "rows").map(({ level }) => level));
  }
  expect(levels).toEqual(["publish", "warn", "publish", "warn", "publish", "warn"]);
});

test("where checks only warn, a day is what later days may resemble", async () => {
  const random = randomNumbers(9);
  const chain = chainOfRuns();
  const suspicious = async (day: number): Promise<number> => {
    let runs = 0;
    for (let hour = 0; hour < 24; hour += 4) {
      const values = [...hourly(random, hour), ...(day < 16 ? [] : hourly(random, hour))];
      const { results } = (await chain.run(timeAt(day, hour), values, { checks: "warn" })).verdict;
      runs += results.some(({ check, level }) => check === "rows" && level !== "pass") ? 1 : 0;
    }
    return runs;
  };
  for (let day = 0; day < 16; day += 1) {
    await suspicious(day);
  }
  expect(await suspicious(16)).toBeGreaterThan(3);
  expect(await suspicious(17)).toBe(0);
});

test.each([
  ["25", Date.UTC(2026, 9, 21, 12, 5), "02:05"],
  ["23", Date.UTC(2026, 2, 25, 13, 5), "03:05"], // 02:05 is skipped
])(
  "days are those of the time zone, until the same time by its clock, also over one of %s hours",
  async (_, from, skipped) => {
    const timeZone = "Europe/Berlin";
    const clock = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
    const [random, chain, sums] = [randomNumbers(10), chainOfRuns(timeZone), new Map<string, number>()];
    for (let hour = 0; hour < 7 * 24; hour += 1) {
      const at = new Date(from + hour * 3_600_000);
      const [date = "", time = ""] = clock.format(at).split(" ");
      const { verdict, day } = await chain.run(at, hourly(random, Number(time.slice(0, 2))));
      expect(holds(verdict), `${date} ${time}`).toEqual([]);
      const earlier = day?.earlier.map((each) => [each.date, each.rows]);
      const dates = [...new Set([...sums.keys()].map((key) => key.slice(0, 10)))].slice(1); // the first begins later
      const isFirst = dates.length === 0 || dates[0] === date;
      const same = dates
        .filter((each) => each !== date)
        .map((each) => [each, sums.get(`${each} ${time}`) ?? sums.get(`${each} ${skipped}`)]);
      expect(isFirst ? [] : earlier, `${date} ${time}`).toEqual(isFirst ? [] : same);
      expect(day?.run.date ?? date).toBe(date);
      sums.set(`${date} ${time}`, sums.get(`${date} ${time}`) ?? day?.run.rows ?? 0);
    }
  },
  60_000,
);

test("the notes of 37 days stay, also of a chain whose attempts are killed and runs discarded", async () => {
  const [random, chain] = [randomNumbers(11), chainOfRuns()];
  const undisturbed = { ...chain.ledger };
  const killed = new Set<RunId>();
  let wanted = 0;
  chain.ledger.remove = async (runId, note) => {
    if (!killed.has(runId)) {
      killed.add(runId);
      throw new Error("killed");
    }
    await undisturbed.remove(runId, note);
  };
  for (let hour = 0; hour < 60 * 24; hour += 8) {
    const nulls = hour >= 1000 && hour < 1040 ? 0.4 : 0;
    const values = [11, 12, 13].flatMap((like) => hourly(random, like, nulls));
    const { verdict } = await chain.run(timeAt(0, hour), values, { held: "discarded" });
    wanted += hour >= (60 - 37) * 24 - 16 && verdict.outcome === "publish" ? 1 : 0;
  }
  expect(chain.notes()).toBe(wanted);
  expect(wanted).toBeLessThan(37 * 3 + 2); // one was discarded

  chain.ledger.remove = (runId, note) => undisturbed.remove(runId, note);
  for (const day of [110, 60]) {
    await chain.run(timeAt(day, 0), [], { isWhole: true });
  }
  expect(chain.notes(), "after a run whose clock was weeks ahead, too").toBe(wanted);

  chain.ledger.remove = () => Promise.reject(new JobError("PERMISSION", "DELETE is not granted"));
  await chain.run(timeAt(60, 0), [], { isWhole: true });
  expect(chain.notes()).toBe(wanted + 1);
});
