import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { holdCommand } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson, nightAt, type Night, nightlyJob, publishedRun } from "../support/nights.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import { firstOf, torture } from "../support/torture.js";
import { callsOf, watchCommand } from "../support/watched.js";

const date = "2026-01-01";
/** One key for each of two erasures. */
const keys = [5, 441] as const;

/** A published night, and the two commands that erase a key of it. */
interface Erasures {
  readonly night: Night;
  readonly first: readonly string[];
  readonly second: readonly string[];
}

/** Makes copies of a night that was published once. `checks`: whether it was decided on. */
async function publishedNights(
  folder: string,
  checks: Record<string, never> | undefined,
): Promise<(name: string) => Promise<Erasures>> {
  const original = join(folder, "original");
  await mkdir(original);
  await nightlyJob(original, { commit_rows: 240, checks });
  for (const [index, key] of keys.entries()) {
    await writeFile(join(original, `keys-${index}.txt`), String(key));
  }
  await expectEnd(nightAt(original, date).run("run"), 0);
  return async (name) => {
    const copy = join(folder, name);
    await cp(original, copy, { recursive: true });
    const erase = (index: number): string[] => [
      "erase",
      join(copy, "job.yaml"),
      "--keys",
      join(copy, `keys-${index}.txt`),
    ];
    return { night: nightAt(copy, date), first: erase(0), second: erase(1) };
  };
}

/** Expects that each command succeeds or says to run it again, and that readers see a whole run. */
async function expectRefusedOrDone({ night }: Erasures, ended: readonly CliResult[]): Promise<void> {
  for (const { code, stdout, stderr } of ended) {
    expect([0, 67], stderr).toContain(code);
    expect(code === 0 || /run the same (?:command|infer-batch erase) again/.test(stdout), stdout).toBe(true);
  }
  if ((await publishedRun(night.out)) !== undefined) {
    const ids = (await outputRows(night.out)).map(({ id }) => Number(id));
    expect([440, 441, 442]).toContain(ids.length);
    expect(new Set(ids).size).toBe(ids.length);
  }
}

/** Expects that both erasures, run again, leave the other rows, and no files of superseded runs. */
async function expectErasedByRepeating({ night, first, second }: Erasures): Promise<void> {
  for (const args of [first, second]) {
    await expectEnd(runHere(args), 0);
  }
  const ids = (await outputRows(night.out)).map(({ id }) => Number(id));
  expect([ids.length, new Set(ids).size, keys.some((key) => ids.includes(key))]).toEqual([440, 440, false]);
  expect(await faultsOfFinished(night.out, 440)).toEqual([]);
  expect(JSON.parse(await readFile(join(night.out, "_manifest.json"), "utf8"))).toMatchObject({
    profile: { baseline: true },
  });
  const names = await readdir(night.out, { recursive: true });
  expect(names.filter((name) => /\/(tmp|parts|withdrawn)\//.test(name))).toEqual([]);
  expect((await night.run("run")).stdout).toContain("already complete");
}

/** The calls to stand still before: all in the long form, else every so many, from the first or a later one, and the last. */
function stopsOf(calls: readonly string[], { every = 20, from = 0 } = {}): string[] {
  const changing = calls.filter((call) => torture || !call.startsWith("sync "));
  return changing.filter((_, index, { length }) => torture || index % every === from || index === length - 1);
}

test.each(
  firstOf([
    { checks: {}, of: "a run that passed its checks", from: 4 },
    { checks: undefined, of: "a run without checks", from: 0 },
  ]),
)(
  "while an erasure of $of stands still at any durable call, another one is refused or erases its key; repeated, both do",
  {
    timeout: 900_000,
  },
  async ({ checks, from }) => {
    const copied = await publishedNights(scratch.path, checks);
    const whole = await copied("whole");
    const calls = await callsOf(scratch.path, whole.night.out, (env) => watchCommand(whole.first, env));
    const stops = stopsOf(calls, { from });
    expect(stops.length).toBeGreaterThan(2);
    const codes = new Set<string>();
    for (const [index, call] of stops.entries()) {
      const erasures = await copied(`at-${index}`);
      const held = join(scratch.path, `held-${index}`);
      const first = await holdCommand(erasures.first, { out: erasures.night.out, call, held });
      const second = await runHere(erasures.second);
      const ended = [await first.release(), second];
      codes.add(ended.map(({ code }) => code).join());
      await expectRefusedOrDone(erasures, ended);
      await expectErasedByRepeating(erasures);
    }
    // The second erasure wins, or it finishes the run of the first one.
    expect(codes).toEqual(new Set(["67,0", "0,0"]));
  },
);

/** The call that commits an erasure's last span: before it, the next erasure plans a run in its place. */
const lastSpan = "link control/parts/part-00001 #1";

test.each([
  { stop: "link control/decision.json #1", moment: "supersede" },
  { stop: "link control/plan.json #1", moment: "plan a run in place of" },
])(
  "an erasure that is about to $moment another one, which stands still at any later durable call meanwhile, leaves a run that can be finished",
  {
    timeout: 900_000,
  },
  async ({ stop }) => {
    const copied = await publishedNights(scratch.path, undefined);
    const whole = await copied("whole");
    const calls = await callsOf(scratch.path, whole.night.out, (env) => watchCommand(whole.first, env));
    const stops = stopsOf(calls.slice(calls.indexOf(lastSpan) + 1), { every: 30 });
    expect(stops.length).toBeGreaterThan(1);
    const codes = new Set<string>();
    for (const [index, later] of stops.entries()) {
      const erasures = await copied(`at-${index}`);
      const { out } = erasures.night;
      const [one, other] = [join(scratch.path, `first-${index}`), join(scratch.path, `second-${index}`)];
      const first = await holdCommand(erasures.first, { out, call: lastSpan, later, held: one });
      const second = await holdCommand(erasures.second, { out, call: stop, held: other });
      await first.next();
      const superseding = await second.release();
      const ended = [await first.release(), superseding];
      codes.add(ended.map(({ code }) => code).join());
      await expectRefusedOrDone(erasures, ended);
      await expectErasedByRepeating(erasures);
    }
    expect([...codes]).toEqual(stop.includes("plan") ? ["67,0"] : expect.arrayContaining(["0,67", "67,0"]));
  },
);

test("run --new-run that is about to plan its run while an erasure plans the same one scores no row of it", async () => {
  const copied = await publishedNights(scratch.path, undefined);
  const erasures = await copied("night");
  const { night } = erasures;
  const { out } = night;
  const run = await holdCommand(night.args("run", "--new-run"), {
    out,
    call: "link control/plan.json #1",
    held: join(scratch.path, "held-run"),
  });
  const erasure = await holdCommand(erasures.first, { out, call: lastSpan, held: join(scratch.path, "held-erasure") });
  await expectEnd(run.release(), 66, "has planned it, to erase rows of");
  expect((await night.run("history")).stdout).not.toContain("failed");
  await expectEnd(erasure.release(), 0);
  const ids = (await outputRows(out)).map(({ id }) => Number(id));
  expect([ids.length, ids.includes(keys[0])]).toEqual([441, false]);
});

test.each(["link control/decision.json #1", "rename _SUCCESS #1"])(
  "run --new-run publishes an erasure that was killed before %s, and then scores a run of its own",
  async (call) => {
    const { night, first } = await (await publishedNights(scratch.path, {}))("night");
    const killed = await watchCommand(first, { CRASH_ROOT: night.out, CRASH_AT: `before ${call}` });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    await expectEnd(night.run("plan"), 0);
    const next = await night.run("run", "--new-run", "--json");
    expect([next.code, lastJson(next)], next.stderr).toMatchObject([
      0,
      { run_id: expect.stringMatching(/-r3$/), status: "complete", rows_scored: 442 },
    ]);
    expect((await outputRows(night.out)).length).toBe(442);
  },
);
