import { cp, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { failuresOf } from "../support/crash.js";
import { scratch } from "../support/job.js";
import { fewRows, lastJson, type Night, nightAt, nightlyJob, type NightSeen, seenBy } from "../support/nights.js";
import { torture } from "../support/torture.js";
import { callsOf, type Kill, killsOrCopies, leftAt, watchCommand } from "../support/watched.js";
import { expectEnd } from "../support/cli.js";

const date = "2026-11-21";
const parallelKills = 2;

/** Two published nights, the second of which a new run with too few rows is to replace. */
async function nightsBefore(folder: string): Promise<Night> {
  const nights = await nightlyJob(folder);
  for (const each of ["2026-11-20", date]) {
    await expectEnd(nights.night("run", each), 0);
  }
  await nights.rewrite(fewRows);
  return nightAt(folder, date);
}

async function heldBefore(folder: string): Promise<Night> {
  const night = await nightsBefore(folder);
  await expectEnd(night.run("run", "--new-run"), 67);
  return night;
}

/** A held night with the fault corrected: a new run would pass. */
async function correctedBefore(folder: string): Promise<Night> {
  const night = await heldBefore(folder);
  await nightlyJob(folder); // which writes the spec as it was
  return night;
}

/** The moments of a command at which it is killed: before each durable call, and after the last. */
async function momentsOf(night: Night, { command, code }: Case, folder: string): Promise<Kill[]> {
  const copies = join(folder, "copies");
  const calls = await callsOf(folder, night.out, (env) => watchCommand(night.args(...command), env), { copies, code });
  // A flush makes no difference to what a killed process leaves.
  const chosen = calls.filter((call) => torture || !call.startsWith("sync "));
  // In short: where the verdict, the decision and the published files are named, and some of the steps that any run does.
  const nth = chosen.length > 20 ? 24 : 3;
  const few = chosen.filter(
    (call, index) => torture || index % nth === 0 || /^(link|rename) .*(verdict|decision|manifest|_SUCCESS)/.test(call),
  );
  return killsOrCopies([...few.map((call) => `before ${call}`), `after ${calls.at(-1) ?? ""}`], copies);
}

interface Case {
  readonly command: readonly [string, ...string[]];
  /** The exit code of an undisturbed command. */
  readonly code: number;
  readonly before: (folder: string) => Promise<Night>;
  /** What readers may find at any moment. */
  readonly seen: readonly NightSeen[];
  /** What readers find when the same command has run again. */
  readonly end: NightSeen;
  readonly status: "held" | "published" | "discarded";
}

const cases: readonly Case[] = [
  {
    command: ["run", "--new-run"],
    code: 67,
    before: nightsBefore,
    seen: ["old"],
    end: "old",
    status: "held",
  },
  {
    command: ["approve", "--by", "ann"],
    code: 0,
    before: heldBefore,
    seen: ["old", "nothing", "new"],
    end: "new",
    status: "published",
  },
  {
    command: ["discard", "--by", "ann"],
    code: 0,
    before: heldBefore,
    seen: ["old"],
    end: "old",
    status: "discarded",
  },
  // The held run is superseded. The run that takes its place has as many rows as the published one.
  {
    command: ["run", "--new-run"],
    code: 0,
    before: correctedBefore,
    seen: ["old", "nothing"],
    end: "old",
    status: "published",
  },
];

test.each(torture ? cases : cases.slice(0, 3))(
  "$command that is killed at any durable call, and should end $status, is carried on by the same command, and readers never see a mix",
  { timeout: 900_000 },
  async (one) => {
    const first = join(scratch.path, "first");
    await mkdir(first);
    await one.before(first);
    const whole = join(scratch.path, "whole");
    await cp(first, whole, { recursive: true });
    const moments = await momentsOf(nightAt(whole, date), one, scratch.path);
    expect(moments.length).toBeGreaterThan(3);
    console.info(`${one.command.join(" ")}, ${one.status}: ${moments.length} kills`);
    const seen = new Set<unknown>();
    const how = { limit: parallelKills, name: ({ moment }: Kill) => `killed ${moment}` };
    const failures = await failuresOf(moments, how, async (kill, index) => {
      const folder = join(scratch.path, `kill-${index}`);
      await cp(first, folder, { recursive: true });
      const night = nightAt(folder, date);
      await leftAt(kill, night.out, (env) => watchCommand(night.args(...one.command), env));
      const left = await seenBy(night.out);
      expect(one.seen).toContainEqual(left);
      seen.add(left);
      if (one.command[0] !== "run" && index % 2 === 0) {
        // Any attempt carries out a decision. Without one the run is still held.
        const decided = await isDecided(night);
        await expectEnd(night.run("run"), decided && one.status === "published" ? 0 : 67);
        expect(decided ? await leftOf(night) : []).toEqual([]);
      }
      // A run that was held when --new-run was killed is superseded by the next one.
      const result = await night.run(...one.command);
      expect([result.code, result.stderr]).toEqual([one.code, expect.any(String)]);
      expect(await seenBy(night.out)).toBe(one.end);
      expect(lastJson(await night.run("status", "--json"))["status"]).toBe(one.status);
      if (one.status !== "held") {
        expect(await leftOf(night)).toEqual([]);
      }
    });
    expect(failures).toEqual([]);
    expect(seen).toEqual(new Set(one.seen));
  },
);

async function controlFiles({ out }: Night): Promise<string[]> {
  return await readdir(join(out, "_infer-batch"), { recursive: true });
}

/** Rows of runs that are over. */
async function leftOf(night: Night): Promise<string[]> {
  return (await controlFiles(night)).filter((name) => name.endsWith(".staged"));
}

async function isDecided(night: Night): Promise<boolean> {
  return (await controlFiles(night)).some((name) => name.endsWith("-r2/decision.json"));
}
