import { existsSync } from "node:fs";
import { mkdir, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { holdRun, runRedirected } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { listing, partNames } from "../support/output.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { commitRows, watchedJob } from "../support/watched.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

async function partPath(out: string, span: number): Promise<string | undefined> {
  const prefix = `part-${String(span).padStart(5, "0")}.`;
  const name = existsSync(out) ? (await readdir(out)).find((candidate) => candidate.startsWith(prefix)) : undefined;
  return name === undefined ? undefined : join(out, name);
}

async function awaitPart(out: string, span: number): Promise<string> {
  for (;;) {
    const path = await partPath(out, span);
    if (path !== undefined) {
      return path;
    }
  }
}

const damages = [
  { what: "deleted", damage: (part: string): Promise<void> => rm(part), says: /part-00001\.\S+ is gone/ },
  {
    what: "cut short",
    damage: (part: string): Promise<void> => truncate(part, 100),
    says: /part-00001\.\S+ has 100 bytes/,
  },
];

describe("a committed part that is damaged during the run", () => {
  test.each(damages)("a run with a damaged part ($what) is not finished until the part is repaired", async (how) => {
    const { spec, out, expected } = await watchedJob(scratch.path);
    const run = await holdRun(spec, { out, call: "link part-00004 #1", held: join(scratch.path, "held") });
    const part = await awaitPart(out, 1);
    await how.damage(part);

    const { stderr, stdout } = await expectEnd(run.release(), 66);
    expect(stderr).toMatch(how.says);
    expect(JSON.parse(stdout)).toMatchObject({ status: "failed", exit_code: 66 });
    expect(await readdir(out)).not.toContain("_SUCCESS");
    await rm(part, { force: true });
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansResumed: 5, rowsScored: 80 });
    await expectFinished(out, expected);
  });

  test("a run with a part of an earlier attempt that was cut short is not finished", async () => {
    const { spec, out, expected } = await watchedJob(scratch.path);
    await leaveUnfinished(spec, out, (span) => span < 3);
    const run = await holdRun(spec, { out, call: "link part-00004 #1", held: join(scratch.path, "held") });
    const part = await awaitPart(out, 1);
    await truncate(part, 100);

    await expectEnd(run.release(), 66, "part-00001.");
    expect(await readdir(out)).not.toContain("_SUCCESS");
    await rm(part);
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansResumed: 5 });
    await expectFinished(out, expected);
  });

  test("a run whose folder was removed is not finished, and the same command scores it again", async () => {
    const { spec, out, expected } = await watchedJob(scratch.path);
    const run = await holdRun(spec, { out, call: "link part-00004 #1", held: join(scratch.path, "held") });
    await rm(out, { recursive: true, maxRetries: 10 }); // the run may be writing into it

    await expectEnd(run.release(), 66, "the run's plan is gone from it");
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansResumed: 0, rowsScored: 442 });
    await expectFinished(out, expected);
  });
});

const rounds = torture ? [1, 2, 3] : [1];

describe("two jobs on one folder", () => {
  test.each(rounds)("started at the same moment: one gets it, the other 64 (round %i)", async (round) => {
    const fixture = fixtureNamed("diabetes-mlp");
    const specs = await Promise.all(
      ["one", "two"].map(async (name) => {
        const folder = join(scratch.path, name);
        await mkdir(folder);
        const output = { parquet: { path: "../out" } };
        return await writeSpec(folder, fixture, {
          name,
          commit_rows: 20 + round,
          output: { columns: ["id"], ...output },
        });
      }),
    );

    const results = await Promise.all(specs.map((spec) => runSpec(spec, { ownProcess: true })));

    const codes = results.map(({ code }) => code);
    expect(
      codes.toSorted((one, other) => Number(one) - Number(other)),
      results.map(({ stderr }) => stderr).join("\n"),
    ).toEqual([0, 64]);
    const refused = results.find(({ code }) => code === 64);
    expect(refused?.stderr).toMatch(/belongs to run|a part of run/);
    const out = join(scratch.path, "out");
    const winner = codes[0] === 0 ? "one" : "two";
    expect((await partNames(out)).filter((name) => !name.includes(`.${winner}-`))).toEqual([]);
    await expectFinished(out, { golden: await goldenRows(fixture) });
  });

  test("the later one is refused though it looked when the folder was still free", async () => {
    const { spec, out, expected } = await watchedJob(scratch.path);
    const late = await holdRun(spec, { out, call: "link control #1", held: join(scratch.path, "held") });
    const folder = join(scratch.path, "other");
    await mkdir(folder);
    const output = { columns: ["id"], parquet: { path: "../out" } };
    const other = await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
      name: "other",
      commit_rows: commitRows,
      output,
    });
    await scoreHere(other);
    const before = await partNames(out);

    await expectEnd(late.release(), 64, /belongs to run other-[0-9a-f]{12}, not to diabetes-mlp-/);
    expect(await partNames(out)).toEqual(before);
    await expectFinished(out, expected);
  });
});

describe("an output folder with files of others", () => {
  test.each(["", "{}\n"])(
    "an output folder with another program's _SUCCESS (%j) is refused, and nothing is written to it",
    async (text) => {
      const { spec, out } = await watchedJob(scratch.path);
      await mkdir(out);
      await writeFile(join(out, "_SUCCESS"), text);
      const before = await listing(out);

      await expectEnd(runSpec(spec), 64, "it has a _SUCCESS but no manifest of this program");
      expect(await listing(out)).toEqual(before);
    },
  );

  test("an output folder that contains only lost+found is used", async () => {
    const { spec, out, expected } = await watchedJob(scratch.path);
    await mkdir(join(out, "lost+found"), { recursive: true });

    await scoreHere(spec);

    await rm(join(out, "lost+found"), { recursive: true });
    await expectFinished(out, expected);
  });
});

describe("a stream that cannot be written", () => {
  const full = existsSync("/dev/full");

  test.skipIf(!full).each(["json", "pretty"])(
    "a stderr that cannot be written does not end the job (%s lines)",
    async (format) => {
      const { spec, out, expected } = await watchedJob(scratch.path);

      const args = ["run", spec, "--json", "--log-level", "debug", "--log-format", format];
      const { stdout } = await expectEnd(runRedirected(args, "2>/dev/full"), 0);
      expect(JSON.parse(stdout)).toMatchObject({ status: "complete", rows_scored: 442 });
      await expectFinished(out, expected);
    },
  );

  test.skipIf(!full).each(["json", "pretty"])(
    "a stderr that cannot be written changes no exit code (%s lines)",
    async (format) => {
      const { spec, out } = await watchedJob(scratch.path);
      await mkdir(out);
      await writeFile(join(out, "notes.txt"), "");

      await expectEnd(runRedirected(["run", spec, "--log-format", format], "2>/dev/full"), 64);
    },
  );

  test.skipIf(!full)(
    "a stdout that cannot be written ends the command with 75, and the output is complete",
    async () => {
      const { spec, out, expected } = await watchedJob(scratch.path);

      await expectEnd(
        runRedirected(["run", spec, "--json", "--no-progress"], ">/dev/full"),
        75,
        /^error: writing to stdout: .*ENOSPC/m,
        "hint: the command did its work; only its report is lost",
      );
      await expectFinished(out, expected);
      expect((await scoreHere(spec)).status).toBe("already_complete");
    },
  );
});
