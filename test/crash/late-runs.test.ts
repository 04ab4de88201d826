import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, runHere } from "../support/cli.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { type Listener, listen } from "../support/listener.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { commitRows, runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

/** The time of day in UTC that is so many minutes away. */
const timeIn = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);

async function lateJob(folder: string, server: Listener, deadline: string, rows = commitRows): Promise<string> {
  return await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
    commit_rows: rows,
    report: { deadline, on_late: `${server.url}/late`, method: "post" },
  });
}

/** Runs an attempt that pauses so long at each call that changes the output, until `isOver`; then kills it. */
async function killSlow(spec: string, folder: string, pauseMs: number, isOver: () => boolean): Promise<CliResult> {
  const env = { CRASH_ROOT: join(folder, "out"), CRASH_PAUSE: String(pauseMs) };
  const result = await runWatched(spec, env, {
    onStart: (child) => {
      void until(isOver).then(() => child.kill("SIGKILL"));
    },
  });
  expect(result.signal, result.stderr).toBe("SIGKILL");
  return result;
}

test("a late run calls on_late once, although it is killed after that, resumed by two workers and finished", {
  timeout: 120_000,
}, async () => {
  await using scratch = await scratchFolder();
  await using server = await listen();
  const spec = await lateJob(scratch.path, server, timeIn(-1));
  const first = await killSlow(spec, scratch.path, 2000, () => server.calls.length > 0);
  expect(first.stderr).toContain("WARN: the run missed report.deadline");

  for (const args of [["--worker", "0/2"], ["--worker", "1/2"], []]) {
    const { code, stderr } = await runHere(["run", spec, ...args]);
    expect(code, stderr).toBe(0);
  }

  expect(server.calls.map(({ path }) => path)).toEqual(["/late"]);
  expect(JSON.parse(server.calls[0]?.body ?? "")).toMatchObject({ status: "late", expected_end: null });
});

test.runIf(torture)(
  "a run that is expected to end after its deadline calls on_late before the deadline, once in two attempts",
  {
    timeout: 400_000,
  },
  async () => {
    await using scratch = await scratchFolder();
    await using server = await listen();
    const deadline = timeIn(2);
    const spec = await lateJob(scratch.path, server, deadline, 10); // 45 spans
    const first = await killSlow(spec, scratch.path, 4000, () => server.calls.length > 0);
    expect(timeIn(0) < deadline || deadline < "00:05").toBe(true);
    expect(first.stderr).toContain("WARN: the run will miss report.deadline");
    const { expected_end: end, deadline: due } = JSON.parse(server.calls[0]?.body ?? "") as Record<string, string>;
    expect(Date.parse(end ?? "")).toBeGreaterThan(Date.parse(due ?? ""));
    await killSlow(spec, scratch.path, 4000, () => timeIn(0) === deadline);
    expect((await runHere(["run", spec])).code).toBe(0);
    expect(server.calls).toHaveLength(1);
  },
);
