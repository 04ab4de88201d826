import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { failuresOf } from "../support/crash.js";
import { scratchFolder } from "../support/job.js";
import { callsOf, killsAt, runWatched, watchedJob } from "../support/watched.js";

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
  await using scratch = await scratchFolder();
  const { spec, out } = await watchedJob(scratch.path);
  const calls = await callsOf(scratch.path, out, (env) => runWatched(spec, env));
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
