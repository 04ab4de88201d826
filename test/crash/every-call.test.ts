import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../support/cli.js";
import { expectFewDoneAgain, expectFinished, failuresOf, inspectWreck } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { randomOf } from "../support/random.js";
import { reuseJob, rowCount, rowsOf, scoresById, scoresOf } from "../support/reuse-job.js";
import { runSpec, scoreHere } from "../support/score.js";
import { firstOf, tellingCalls, torture } from "../support/torture.js";
import {
  callsOf,
  commitRows,
  type Kill,
  killsAt,
  killsOrCopies,
  leftAt,
  runWatched,
  spans,
  traceOf,
  watchedJob,
} from "../support/watched.js";

const parallelKills = 2;

async function killAndResume(kill: Kill): Promise<{ committed: number }> {
  await using folder = await scratchFolder();
  const { spec, out, expected } = await watchedJob(folder.path);

  const said = await leftAt(kill, out, (env) => runWatched(spec, env));

  const wreck = await inspectWreck(out, expected, said);
  expectFewDoneAgain(wreck);

  const report = await scoreHere(spec);

  // Nothing that stood was scored again, and all that was missing was.
  const missing = Array.from({ length: spans }, (_, span) => span).filter((span) => !wreck.committed.includes(span));
  const rows = missing.reduce((sum, span) => sum + Math.min(commitRows, expected.golden.length - span * commitRows), 0);
  expect(report).toMatchObject({ rowsScored: rows, spansResumed: wreck.committed.length, spansCommitted: spans });
  expect(["complete", "already_complete"]).toContain(report.status);
  await expectFinished(out, expected);
  expect((await scoreHere(spec)).status).toBe("already_complete");
  return { committed: wreck.committed.length };
}

test("each part is flushed before it has its name, and its name before its temporary file goes", async () => {
  const trace = await traceOf();

  for (let span = 0; span < spans; span += 1) {
    const part = `part-${String(span).padStart(5, "0")}`;
    const flushed = trace.indexOf(`sync control/tmp/${part}-parquet #1`);
    const named = trace.indexOf(`link ${part} #1`);
    const dropped = trace.indexOf(`unlink control/tmp/${part}-parquet #1`);
    expect(flushed, `${part}: flushed`).toBeGreaterThanOrEqual(0);
    expect(named, `${part}: named after it is flushed`).toBeGreaterThan(flushed);
    expect(dropped, `${part}: temporary name dropped last`).toBeGreaterThan(named);
    const folderFlushed = trace.slice(named, dropped).some((call) => call.startsWith("sync . "));
    expect(folderFlushed, `${part}: the folder is flushed in between`).toBe(true);
  }
  const success = trace.indexOf("rename _SUCCESS #1");
  const afterParts = trace.findLastIndex((call) => /^(link|unlink) .*part-/.test(call));
  expect(trace.indexOf("rename _manifest.json #1")).toBeGreaterThan(afterParts);
  expect(success).toBeGreaterThan(trace.indexOf("rename _manifest.json #1"));
  expect(trace.slice(success + 1).filter((call) => call.startsWith("sync . "))).toHaveLength(1);
});

test("every row comes out once after a process has died at any durable call", { timeout: 600_000 }, async () => {
  const copies = join(scratch.path, "copies");
  const moments = killsAt(tellingCalls(await traceOf(copies), (call) => call, { ends: true }));
  const kills = killsOrCopies(moments, copies);
  const committed = new Set<number>();
  const how = { limit: parallelKills, name: ({ moment }: Kill) => `killed ${moment}` };
  const failures = await failuresOf(kills, how, async (kill) => {
    committed.add((await killAndResume(kill)).committed);
  });

  expect(failures).toEqual([]);
  // The kills were spread over the run: they left anything from no part to all of them.
  expect(kills.length).toBeGreaterThan(torture ? 100 : 20);
  expect([...committed]).toEqual(expect.arrayContaining(torture ? [0, 2, 4, 6] : [0, 6]));
  expect([...committed].filter((parts) => parts > 0 && parts < spans)).not.toEqual([]);
});

/** Every file below a folder, with its bytes, which are those of one file where names are hard links. */
async function filesIn(folder: string): Promise<Record<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const read = files
    .toSorted()
    .map(async (path) => [path.slice(folder.length), await readFile(path, "base64")] as const);
  return Object.fromEntries(await Promise.all(read));
}

// The short forms of tests that kill at each call take copies for most of the kills.
test("a copy of the output folder at a call has what a process leaves that is killed there", async () => {
  await using ownFolder = await scratchFolder();
  const { spec, out } = await watchedJob(ownFolder.path);
  const calls = await callsOf(ownFolder.path, out, (env) => runWatched(spec, env));
  // Where one call is made at a time, so that the kill interrupts no other.
  const moments = killsAt(calls).filter(
    (moment) => /plan|_manifest|success/i.test(moment) && !moment.startsWith("after"),
  );
  const chosen = ["before ", "torn "].flatMap((when) =>
    moments.filter((moment) => moment.startsWith(when)).slice(0, 2),
  );
  expect(chosen).toHaveLength(4);
  const failures = await failuresOf(chosen, { limit: 1, name: (moment) => moment }, async (moment) => {
    await using copies = await scratchFolder();
    await rm(out, { recursive: true });
    const killed = await runWatched(spec, { CRASH_ROOT: out, CRASH_AT: moment, CRASH_COPIES: copies.path });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    const left = await filesIn(out);
    expect(Object.keys(left).length).toBeGreaterThan(0);
    expect(await filesIn(join(copies.path, encodeURIComponent(moment), "left"))).toEqual(left);
  });
  expect(failures).toEqual([]);
});

const [first, second, third] = ["2026-01-01", "2026-01-02", "2026-01-03"] as const;
const rounds = torture ? 20 : 1;

test.each(
  firstOf([
    ["of the night before", []],
    ["of the run that it replaces", ["--new-run", "--reuse"]],
  ] as const),
)(
  "a process that is killed while it reuses predictions %s leaves each row to be published once, and right",
  async (_, args) => {
    const rows = args.length === 0 ? second : third;
    const random = randomOf(17);
    for (let round = 0; round < rounds; round += 1) {
      await using ownFolder = await scratchFolder();
      const job = await reuseJob(ownFolder.path, { commit_rows: 10 });
      await job.night(first);
      if (args.length > 0) {
        await job.night(second);
      }
      await job.prepare(second, { select: rowsOf(rows) });
      const cutSpans = rowCount / 10;
      let [kills, done] = [0, false];
      while (!done) {
        const after = kills === 0 ? 0 : Math.floor(random() * cutSpans);
        let killed = false;
        const { code, stderr } = await runCli(["run", job.spec, ...args, "--log-level", "debug", "--no-progress"], {
          onStderr: (seen, child) => {
            // Once as soon as the source is read, then behind some spans.
            const isAt =
              after === 0
                ? seen.includes("reusing predictions")
                : [...seen.matchAll(/span \d+ committed/g)].length >= after;
            if (isAt && !killed && kills < 3) {
              killed = child.kill("SIGKILL");
            }
          },
        });
        kills += killed ? 1 : 0;
        done = code === 0;
        expect(done || killed, stderr).toBe(true);
      }
      expect(kills).toBeGreaterThan(0);
      const { summary, stderr } = await runSpec(job.spec);
      expect(summary, stderr).toMatchObject({ status: "already_complete" });
      expect(scoresById(await outputRows(join(ownFolder.path, `out/dt=${second}`)))).toEqual(scoresOf(rows));
    }
  },
);
