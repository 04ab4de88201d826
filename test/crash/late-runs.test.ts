import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, runHere } from "../support/cli.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { type Listener, listen } from "../support/listener.js";
import { until } from "../support/waiting.js";
import { commitRows, runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

/** The time of day in UTC that is so many minutes away. */
const timeIn = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);

async function lateJob(folder: string, server: Listener, deadline: string): Promise<string> {
  return await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
    commit_rows: commitRows,
    report: { deadline, on_late: `${server.url}/late`, method: "post" },
  });
}

/** Runs an attempt that stands still before its fourth part, until `isOver`; then kills it. */
async function standStill(spec: string, folder: string, isOver: () => boolean): Promise<CliResult> {
  const held = join(folder, "held");
  const env = { CRASH_ROOT: join(folder, "out"), CRASH_AT: "hold link part-00003 #1", CRASH_HOLD: held };
  const result = await runWatched(spec, env, {
    onStart: (child) => {
      void until(() => existsSync(held) && isOver()).then(() => child.kill("SIGKILL"));
    },
  });
  expect(result.signal, result.stderr).toBe("SIGKILL");
  await rm(held);
  return result;
}

test("a late run calls on_late once, although it is killed after that, resumed by two workers and finished", {
  timeout: 120_000,
}, async () => {
  await using scratch = await scratchFolder();
  await using server = await listen();
  const spec = await lateJob(scratch.path, server, timeIn(-1));
  const first = await standStill(spec, scratch.path, () => server.calls.length > 0);
  expect(first.stderr).toContain("WARN: the run missed report.deadline");

  for (const args of [["--worker", "0/2"], ["--worker", "1/2"], []]) {
    const { code, stderr } = await runHere(["run", spec, ...args]);
    expect(code, stderr).toBe(0);
  }

  expect(server.calls.map(({ path }) => path)).toEqual(["/late"]);
  expect(JSON.parse(server.calls[0]?.body ?? "")).toMatchObject({ status: "late", expected_end: null });
});
