import { cp, mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { inParallel } from "../support/crash.js";
import { scratchFolder } from "../support/job.js";
import { fewRows, lastJson, type Night, nightAt, nightlyJob, type NightSeen, seenBy } from "../support/nights.js";
import { torture } from "../support/torture.js";
import { watchCommand } from "../support/watched.js";

const date = "2026-11-21";
const parallelKills = 2;

/** Two published nights, the second of which a new run with too few rows is to replace. */
async function nightsBefore(folder: string): Promise<Night> {
  const nights = await nightlyJob(folder);
  for (const each of ["2026-11-20", date]) {
    expect((await nights.night("run", each)).code).toBe(0);
  }
  await nights.rewrite(fewRows);
  return nightAt(folder, date);
}

/** The same, with the new run held. */
async function heldBefore(folder: string): Promise<Night> {
  const night = await nightsBefore(folder);
  expect((await night.run("run", "--new-run")).code).toBe(67);
  return night;
}

/** The moments of a command at which it is killed: before each durable call, and after the last. */
async function momentsOf(night: Night, { command, code }: Case, folder: string): Promise<string[]> {
  const trace = join(folder, "trace");
  const result = await watchCommand(night.args(...command), { CRASH_ROOT: night.out, CRASH_TRACE: trace });
  expect(result.code, result.stderr).toBe(code);
  const calls = (await readFile(trace, "utf8")).trimEnd().split("\n");
  const chosen = calls.filter((call) => torture || !call.startsWith("sync ") || /verdict|decision/.test(call));
  return [...chosen.map((call) => `before ${call}`), `after ${calls.at(-1) ?? ""}`];
}

interface Case {
  readonly command: readonly [string, ...string[]];
  /** The exit code of an undisturbed command. */
  readonly code: number;
  readonly before: (folder: string) => Promise<Night>;
  /** What readers may find at any moment. */
  readonly seen: readonly NightSeen[];
  /** The commands that carry on, one of which is drawn by the moment's number, and their exit codes. */
  readonly after: readonly (readonly [command: readonly [string, ...string[]], code: number])[];
  readonly end: NightSeen;
}

const cases: readonly Case[] = [
  {
    command: ["run", "--new-run"],
    code: 67,
    before: nightsBefore,
    seen: ["old"],
    after: [[["run", "--new-run"], 67]],
    end: "old",
  },
  {
    command: ["approve", "--by", "ann"],
    code: 0,
    before: heldBefore,
    seen: ["old", "nothing", "new"],
    after: [
      [["approve"], 0],
      [["run"], 0],
    ],
    end: "new",
  },
  {
    command: ["discard", "--by", "ann"],
    code: 0,
    before: heldBefore,
    seen: ["old"],
    after: [[["discard"], 0]],
    end: "old",
  },
];

test.each(cases)(
  "$command that is killed at any durable call is carried on by the same command, and readers never see a mix",
  { timeout: 900_000 },
  async (one) => {
    await using scratch = await scratchFolder();
    const first = join(scratch.path, "first");
    await mkdir(first);
    await one.before(first);
    const whole = join(scratch.path, "whole");
    await cp(first, whole, { recursive: true });
    const moments = await momentsOf(nightAt(whole, date), one, scratch.path);
    expect(moments.length).toBeGreaterThan(5);
    const failures: string[] = [];
    const seen = new Set<unknown>();
    await inParallel(moments, parallelKills, async (moment, index) => {
      try {
        const folder = join(scratch.path, `kill-${index}`);
        await cp(first, folder, { recursive: true });
        const night = nightAt(folder, date);
        const killed = await watchCommand(night.args(...one.command), { CRASH_ROOT: night.out, CRASH_AT: moment });
        expect(killed.signal, killed.stderr).toBe("SIGKILL");
        const left = await seenBy(night.out);
        expect(one.seen).toContainEqual(left);
        seen.add(left);
        const [command, code] = one.after[index % one.after.length] ?? one.after[0] ?? [["run"], 0];
        // A run that was held when it was killed is superseded by the next one of --new-run.
        const result = await night.run(...command);
        expect([result.code, result.stderr]).toEqual([code, expect.any(String)]);
        expect(await seenBy(night.out)).toBe(one.end);
        expect(lastJson(await night.run("status", "--json"))["status"]).toBe(
          one.end === "new" ? "complete" : one.command[0] === "discard" ? "discarded" : "held",
        );
      } catch (error) {
        failures.push(`killed ${moment}: ${error instanceof Error ? error.message : String(error)}`);
      }
    });
    expect(failures).toEqual([]);
    expect(seen).toEqual(new Set(one.seen));
  },
);
