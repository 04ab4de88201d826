import { cp, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { OpenedJob } from "#src/flow/opened-job.js";
import { openJob } from "#src/job/open.js";
import { withInput } from "#src/run/input.js";
import { runJob } from "#src/run/run.js";
import { type CliResult, expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { fixtures, scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { until } from "../support/waiting.js";

const wine = fixtures[2] as (typeof fixtures)[number];
const parts = join(projectFolder, "fixtures/data/wine");
const waiting = /checking again for up to/;

interface Waited extends CliResult {
  readonly report: { readonly status: string; readonly rows_planned: number; readonly input_wait_seconds: number };
}

/** Runs a job that waits; calls `arrive` with the folder of its input, and with what waits for a message, once it says so. */
async function runWaiting(
  { input, args = [], ...overrides }: SpecOverrides & { readonly args?: readonly string[] },
  arrive: (folder: string, says: (what: RegExp) => Promise<void>) => Promise<void>,
): Promise<Waited> {
  await using ownFolder = await scratchFolder();
  const folder = join(ownFolder.path, "in");
  await mkdir(folder);
  const spec = await writeSpec(ownFolder.path, wine, {
    input: { path: "in/*.parquet", wait: "60s", ...input },
    ...overrides,
  });
  let arriving: Promise<void> | undefined;
  let said = "";
  const ended = await runHere(["run", spec, "--json", ...args], {
    onStderr: (seen) => {
      said = seen;
      arriving ??= waiting.test(seen) ? arrive(folder, (what) => until(() => what.test(said))) : undefined;
    },
  });
  await arriving;
  return { ...ended, report: JSON.parse(ended.stdout === "" ? "{}" : ended.stdout) as Waited["report"] };
}

async function put(folder: string, part: number): Promise<void> {
  const name = `part-0000${part}.parquet`;
  await cp(join(parts, name), join(folder, `.${name}`));
  await rename(join(folder, `.${name}`), join(folder, name));
}

describe("input.wait", () => {
  // Together: all that they do most of the time is to wait.
  test.concurrent("input.wait waits for the marker of input.ready, even if files match", async () => {
    const { code, stderr, report } = await runWaiting({ input: { ready: "in/_SUCCESS" } }, async (folder) => {
      await put(folder, 0);
      await put(folder, 1);
      await writeFile(join(folder, "_SUCCESS"), "");
    });
    expect([code, report]).toMatchObject([0, { status: "complete" }]);
    expect(report.input_wait_seconds).toBeGreaterThan(0);
    expect(stderr).toMatch(
      /in\/_SUCCESS \(input\.ready\) is not there yet; checking again for up to 60 s \(input\.wait\)\n/,
    );
    expect(stderr.match(waiting)).toHaveLength(1);
    expect(stderr).toMatch(/found the input after \d+ s\n/);
  });

  test.concurrent("input.wait without input.ready waits for files that match", async () => {
    const { code, stderr, report } = await runWaiting({}, (folder) => put(folder, 0));
    expect([code, report.status]).toEqual([0, "complete"]);
    expect(stderr).toContain("waiting for input: no file matches in/*.parquet; checking again");
  });

  test.concurrent("input.wait waits for a file that is named without wildcards", async () => {
    const { code, stderr, report } = await runWaiting({ input: { path: "in/part-00000.parquet" } }, (folder) =>
      put(folder, 0),
    );
    expect([code, report.status]).toEqual([0, "complete"]);
    expect(stderr).toContain("waiting for input: there is no in/part-00000.parquet; checking again");
  });

  test.concurrent("input.wait waits until the input has input.min_rows rows", async () => {
    let told = 0;
    const { code, stderr, report } = await runWaiting({ input: { min_rows: 100 } }, async (folder, says) => {
      told += 1;
      await put(folder, 0);
      await says(/has 60 rows/);
      await put(folder, 3);
    });
    expect([code, told, report]).toMatchObject([0, 1, { status: "complete", rows_planned: 124 }]);
    expect(stderr).toMatch(/has 60 rows in 1 file, input\.min_rows is 100; checking again for up to 5\d s/);
  });

  test.concurrent("input.wait ends in 75 when the time is over, with the same message and how long it waited", async () => {
    const { code, stdout, stderr } = await runWaiting({ input: { ready: "in/_SUCCESS", wait: "2s" } }, () =>
      Promise.resolve(),
    );
    expect([code, JSON.parse(stdout)]).toMatchObject([
      75,
      { status: "failed", exit_code: 75, code: "INPUT_NOT_READY" },
    ]);
    expect(stderr).toContain(
      "error: waiting for input: in/_SUCCESS (input.ready) is not there yet (waited 2 s)\n  hint: ",
    );
  });

  test.concurrent("input.wait ends in 75 when the input still has too few rows at the end", async () => {
    await expectEnd(
      runWaiting({ input: { min_rows: 1000, wait: "4s" } }, (folder) => put(folder, 0)),
      75,
      /error: planning wine-forest: .* has 60 rows in 1 file, input\.min_rows is 1000 \(waited 4 s\)\n/,
    );
  });

  test.concurrent("input.wait with --quiet says nothing while it waits, and one line at the end", async () => {
    const { code, stdout, stderr } = await runWaiting(
      { input: { ready: "in/_SUCCESS", wait: "2s" }, args: ["--quiet"] },
      () => Promise.reject(new Error("it spoke")),
    );
    expect([code, JSON.parse(stdout)]).toMatchObject([
      75,
      { status: "failed", exit_code: 75, code: "INPUT_NOT_READY" },
    ]);
    expect(stderr).toBe("error: waiting for input: in/_SUCCESS (input.ready) is not there yet (waited 2 s)\n");
  });

  test.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const)("input.wait is ended by %s at once", async (signal, exitCode) => {
    await using ownFolder = await scratchFolder();
    const spec = await writeSpec(ownFolder.path, wine, { input: { ready: "_SUCCESS", wait: "4h" } });
    let sentMs = 0;
    const { code } = await runCli(["run", spec], {
      onStderr: (seen, child) => {
        if (sentMs === 0 && waiting.test(seen)) {
          sentMs = performance.now();
          child.kill(signal);
        }
      },
    });
    expect([code, performance.now() - sentMs < 4000]).toEqual([exitCode, true]);
  });

  test("a change of input.wait or input.ready does not affect a run that is planned, and a complete run does not wait", async () => {
    await using ownFolder = await scratchFolder();
    const ready = join(ownFolder.path, "_SUCCESS");
    await writeFile(ready, "");
    const spec = await writeSpec(ownFolder.path, wine, { input: { ready: "_SUCCESS", wait: "1h" } });
    await expectEnd(runHere(["run", spec]), 0);
    const text = await readFile(spec, "utf8");
    await writeFile(spec, text.replace('"1h"', '"2h"').replace('"_SUCCESS"', '"_NOT_THERE"'));
    const again = await runHere(["run", spec, "--json"]);
    expect([again.code, JSON.parse(again.stdout)]).toMatchObject([
      0,
      { status: "already_complete", input_wait_seconds: 0 },
    ]);
  });

  test("plan ignores input.wait and reports at once that the input is not ready", async () => {
    await using ownFolder = await scratchFolder();
    const spec = await writeSpec(ownFolder.path, wine, { input: { ready: "_SUCCESS", wait: "1h" } });
    await expectEnd(runHere(["plan", spec]), 75, "_SUCCESS (input.ready) is not there yet\n");
  });

  test.each(["4", "4 h", "1w", "-1s", "h", "1h30m"])(
    "input.wait refuses %j with 64, because it is not a duration",
    async (wait) => {
      await using ownFolder = await scratchFolder();
      const spec = await writeSpec(ownFolder.path, wine, { input: { wait } });
      await expectEnd(runHere(["plan", spec]), 64, "expected a duration such as 30s, 15m, 4h or 2d");
    },
  );
});

/** A night in which no marker comes; a look takes so long. */
async function waitInVain(lookMs: number): Promise<{ looks: number; said: string[]; hours: number; error: unknown }> {
  let now = 0;
  let looks = 0;
  const said: string[] = [];
  const opened = {
    job: { spec: { input: { path: ["in/*.parquet"], ready: "in/_SUCCESS", wait: 4 * 3600 } } },
    input: {
      source: {
        exists: () => {
          looks += 1;
          now += lookMs;
          return Promise.resolve(false);
        },
      },
    },
    attempt: {
      nowMs: () => now,
      sleep: (ms: number) => {
        now += ms;
        return Promise.resolve();
      },
    },
    reporter: { log: { info: (line: string) => said.push(line) }, record: { inputWaitSeconds: 0 } },
  } as unknown as OpenedJob;
  const error: unknown = await withInput(opened, () => Promise.resolve()).catch((thrown: unknown) => thrown);
  return { looks, said, hours: opened.reporter.record.inputWaitSeconds / 3600, error };
}

describe("a night of waiting", () => {
  test("input.wait looks for the input about once a minute, and says so twice an hour", async () => {
    const { looks, said, hours, error } = await waitInVain(10);
    expect([looks > 240, looks < 260, said.length]).toEqual([true, true, 8]);
    expect([said[0], said[1]]).toEqual([
      "waiting for input: in/_SUCCESS (input.ready) is not there yet; checking again for up to 4 h (input.wait)",
      expect.stringMatching(/checking again for up to 3 h (30|29) min \(input\.wait\)$/),
    ]);
    expect([hours, error]).toEqual([4, expect.objectContaining({ code: "INPUT_NOT_READY" })]);
  });

  test("input.wait looks less often if looking takes long", async () => {
    expect((await waitInVain(30_000)).looks).toBeLessThan(30);
  });
});

interface Calls {
  /** Of the sink's `find`: how often the target was looked at. */
  finds: number;
  /** Engines that were opened: each loads the model. */
  engines: number;
}

/** Carries out a job whose shards come one after the other, one at each pause; counts what it asked for. */
async function runWithArrivals(
  folder: string,
  { input, newRun, arrivals }: { input: object; newRun: boolean; arrivals: readonly number[] },
): Promise<{ outcome: unknown; calls: Calls }> {
  await mkdir(join(folder, "in"), { recursive: true });
  const spec = await writeSpec(folder, wine, { input: { path: "in/*.parquet", ...input } });
  const calls: Calls = { finds: 0, engines: 0 };
  const left = [...arrivals];
  const attempt = { worker: { index: 0, count: 1 }, steal: false, newRun };
  await using job = await openJob(spec, { param: [] }, { attempt });
  const { sink } = job;
  const outcome: unknown = await runJob({
    ...job,
    attempt: {
      ...job.attempt,
      async sleep() {
        const part = left.shift();
        if (part !== undefined) {
          await cp(join(parts, `part-0000${part}.parquet`), join(folder, "in", `part-0000${part}.parquet`));
        }
      },
    },
    sink: {
      ...sink,
      find(base) {
        calls.finds += 1;
        return sink.find(base);
      },
    },
    models: {
      ...job.models,
      openEngine(model, need) {
        calls.engines += 1;
        return job.models.openEngine(model, need);
      },
    },
  }).catch((error: unknown) => error);
  return { outcome, calls };
}

test("a new run that waits for its rows looks at the target once, and loads the model when they are there", async () => {
  const input = { min_rows: 61, wait: "4h" };
  const first = await runWithArrivals(scratch.path, { input, newRun: false, arrivals: [0, 1] });
  expect(first).toMatchObject({ outcome: { status: "complete", rowsPlanned: 61 }, calls: { finds: 1, engines: 1 } });

  const more = { min_rows: 170, wait: "4h" };
  const second = await runWithArrivals(scratch.path, { input: more, newRun: true, arrivals: [2, 3, 4] });

  expect(second).toMatchObject({
    outcome: { status: "complete", rowsPlanned: 178, runId: expect.stringMatching(/-r2$/) as string },
    calls: { finds: 1, engines: 1 },
  });
});

test("input.min_rows is checked before the model is loaded", async () => {
  await mkdir(join(scratch.path, "in"));
  await cp(join(parts, "part-00000.parquet"), join(scratch.path, "in/part-00000.parquet"));

  const found = await runWithArrivals(scratch.path, { input: { min_rows: 61 }, newRun: false, arrivals: [] });

  expect(found).toMatchObject({
    outcome: { code: "INPUT_NOT_READY", message: expect.stringContaining("has 60 rows in 1 file") as string },
    calls: { engines: 0 },
  });
});

test("an input without a shard loads no model", async () => {
  const found = await runWithArrivals(scratch.path, { input: {}, newRun: false, arrivals: [] });

  expect(found).toMatchObject({
    outcome: { code: "INPUT_NOT_READY", message: "planning wine-forest: no file matches in/*.parquet" },
    calls: { engines: 0 },
  });
});
