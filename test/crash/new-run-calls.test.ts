import { cp, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { failuresOf } from "../support/crash.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { faultsOfFinished, outputRows, partNames } from "../support/output.js";
import { readFiles, type Row } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";
import { firstOf, tellingCalls, torture } from "../support/torture.js";
import { callsOf, type Kill, killsAt, killsOrCopies, leftAt, runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

/** A finished run, and a spec that asks for another column: rows tell whether they are of the new run. */
interface TwoRuns {
  readonly spec: string;
  readonly out: string;
  readonly old: readonly Row[];
  readonly new: readonly Row[];
}

const fixture = fixtureNamed("diabetes-mlp");

/** Scores the first run in `folder`, or the first `old` ones, and changes its spec. Copies of the folder may be made. */
async function twoRuns(folder: string, commitRows: number, { old = 1 } = {}): Promise<TwoRuns> {
  const golden = await goldenRows(fixture);
  for (let number = 1; number <= old; number += 1) {
    await scoreHere(await writeSpec(folder, fixture, { commit_rows: commitRows }), { newRun: true });
  }
  const model = { outputs: { again: "score" } };
  const spec = await writeSpec(folder, fixture, { commit_rows: commitRows, model });
  return { spec, out: join(folder, "out"), old: golden, new: golden.map(({ id, score }) => ({ id, again: score })) };
}

async function copyOf(runs: TwoRuns, from: string, to: string): Promise<TwoRuns> {
  await cp(from, to, { recursive: true });
  return { ...runs, spec: join(to, "job.yaml"), out: join(to, "out") };
}

/** What a reader counts: rows of the old run, of the new one, or nothing. */
type Look = "old" | "new" | "nothing" | { readonly faults: readonly string[] };

/** Reads as readers are told to; what was read is dropped where `_SUCCESS` has changed meanwhile. */
async function look({ out, old, new: next }: TwoRuns): Promise<Look> {
  const before = await successIn(out);
  if (before === undefined) {
    return "nothing";
  }
  const names = await partNames(out);
  const rows = await readFiles(names.map((name) => join(out, name))).catch((error: unknown) => String(error));
  if ((await successIn(out)) !== before) {
    return "nothing";
  }
  if (typeof rows === "string") {
    return { faults: [`${before}: ${rows}`] };
  }
  const which = "again" in (rows[0] ?? {}) ? "new" : "old";
  const faults = differences(rows, which === "new" ? next : old);
  return faults.length === 0 ? which : { faults: [`${before}: ${names.join()}`, ...faults] };
}

async function successIn(out: string): Promise<string | undefined> {
  return await readFile(join(out, "_SUCCESS"), "utf8").catch(() => undefined);
}

async function expectNew({ out, new: next }: TwoRuns): Promise<void> {
  expect(differences(await outputRows(out), next)).toEqual([]);
  expect(await faultsOfFinished(out, next.length)).toEqual([]);
  const names = await readdir(join(out, "_infer-batch"), { recursive: true });
  expect(names.filter((name) => /\/(tmp|parts|withdrawn)\//.test(name))).toEqual([]);
}

/** INFER_BATCH_TORTURE=1: more spans, and kills after each call as well as before it. */
const commitRows = torture ? 80 : 240;
const parallelKills = 2;
const args = ["--new-run"];

/** Carries out an undisturbed new run in a copy of `first`. Returns its durable calls, in order. */
async function traceOf(finished: TwoRuns, first: string, folder: string): Promise<string[]> {
  const runs = await copyOf(finished, first, join(folder, "whole"));
  const calls = await callsOf(folder, runs.out, (env) => runWatched(runs.spec, env, { args }), {
    copies: copiesIn(folder),
  });
  await expectNew(runs);
  return calls;
}

const copiesIn = (folder: string): string => join(folder, "copies");

/**
 * Up to the last part a new run does what any run does, which every-call.test.ts kills at each call: of that, a part is
 * enough, and all that concerns plans. Of the swap the short form tries each call that a reader can notice, and every
 * sixth one of the others.
 */
function momentsOf(trace: readonly string[]): string[] {
  const staged = trace.findLastIndex((call) => call.startsWith("unlink control/tmp/part-"));
  const told = /plan|part-|_SUCCESS|success/;
  const kills = killsAt(
    trace.filter((call, index) => torture || index > staged || index % 8 === 0 || /plan/.test(call)),
  );
  return kills.filter(
    (kill, index) => torture || told.test(kill) || kill.startsWith("after ") || (kills.length - index) % 6 === 0,
  );
}

/** A new run over a finished one. Each kill has a copy of `first`, which holds the finished run. */
interface Kills {
  readonly finished: TwoRuns;
  readonly first: string;
  readonly folder: string;
  readonly moments: readonly string[];
  /** Number of the new run. */
  readonly number: number;
  /** The finished run is damaged: readers may find faults in it. */
  readonly isDamaged: boolean;
}

/** Takes what the new run leaves that is killed at each moment, and has the same command finish it. */
async function killAtEach({ finished, first, folder, moments, number, isDamaged }: Kills): Promise<void> {
  const seen = new Set<string>();
  const before = await partNames(finished.out);
  const kills = killsOrCopies(moments, copiesIn(folder));
  const how = { limit: parallelKills, name: ({ moment }: Kill) => `killed ${moment}` };
  const failures = await failuresOf(kills, how, async (kill, index) => {
    const runs = await copyOf(finished, first, join(folder, `kill-${index}`));
    await leftAt(kill, runs.out, (env) => runWatched(runs.spec, env, { args }));
    const left = await look(runs);
    const names = await partNames(runs.out);
    if (left === "new" || left === "nothing") {
      seen.add(left);
    } else {
      expect(isDamaged || left === "old", JSON.stringify(left)).toBe(true);
      expect(names).toEqual(expect.arrayContaining(before)); // the old rows stay until all new ones are there
      seen.add("old");
    }

    const report = await scoreHere(runs.spec, { newRun: true });

    expect(report.status).toBe("complete");
    // Killed when all was done, it is opened once more.
    expect(report.runId).toMatch(new RegExp(`-r${left === "new" ? number + 1 : number}$`));
    await expectNew(runs);
  });
  expect(failures).toEqual([]);
  expect(seen).toEqual(new Set(["old", "nothing", "new"]));
}

test("a new run that is killed at any durable call is finished by the same command, and readers see old or new", {
  timeout: 900_000,
}, async () => {
  const first = join(scratch.path, "first");
  const finished = await twoRuns(await emptyFolder(first), commitRows);
  const moments = momentsOf(await traceOf(finished, first, scratch.path));
  expect(moments.length).toBeGreaterThan(torture ? 30 : 9);
  await killAtEach({ finished, first, folder: scratch.path, moments, number: 2, isDamaged: false });
});

const damages = [
  { what: "without a part", old: 1, lost: async ({ out }: TwoRuns) => (await partNames(out))[0] },
  {
    what: "whose plan is lost",
    old: 2,
    lost: () => Promise.resolve("_infer-batch/diabetes-mlp-4f53cda18c2b-r2/plan.json"),
  },
  { what: "whose plans are all lost", old: 3, lost: () => Promise.resolve("_infer-batch") },
];

test.each(firstOf(damages.toReversed()))(
  "a new run over one $what that is killed at any durable call is finished by the same command",
  {
    timeout: 900_000,
  },
  async ({ old, lost }) => {
    const first = join(scratch.path, "first");
    const finished = await twoRuns(await emptyFolder(first), commitRows, { old });
    await rm(join(finished.out, (await lost(finished)) ?? ""), { recursive: true });
    const trace = await traceOf(finished, first, scratch.path);
    // The test above is killed at each call of the swap, which is the same here.
    const moments = tellingCalls(momentsOf(trace), (moment) => moment, { ends: true }).filter(
      (moment, index, { length }) => torture || index % 8 === 0 || index === length - 1 || /link .*plan/.test(moment),
    );
    await killAtEach({ finished, first, folder: scratch.path, moments, number: old + 1, isDamaged: true });
  },
);

async function emptyFolder(path: string): Promise<string> {
  await mkdir(path);
  return path;
}
