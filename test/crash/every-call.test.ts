import { join } from "node:path";
import { expect, test } from "vitest";
import { expectFewDoneAgain, expectFinished, failuresOf, inspectWreck } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { scoreHere } from "../support/score.js";
import { tellingCalls, torture } from "../support/torture.js";
import {
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

/** Looks at what a killed run leaves, and lets the same command finish. */
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
