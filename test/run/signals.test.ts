import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, type RunningCli } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { differences } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames, spanOfName } from "../support/output.js";
import { readRows, writeRows } from "../support/parquet.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { tell, until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const commitRows = 200;
/** 442 rows, 40 times over: thousands of calls of the model at one row each. */
const copies = 40;
const rowCount = 442 * copies;

interface SlowJob {
  readonly spec: string;
  readonly out: string;
  /** From now on in batches of many rows: what is left when the run was stopped is soon done. */
  hurry(): Promise<void>;
  /** As it is at first. */
  slowDown(): Promise<void>;
}

async function slowJob(folder: string): Promise<SlowJob> {
  await mkdir(join(folder, "in"));
  await writeRows(
    join(folder, "in/many.parquet"),
    `SELECT t.* REPLACE (t.id + 442 * copy AS id) FROM read_parquet('${join(projectFolder, "fixtures/data/diabetes/*.parquet")}') t,
       range(${copies}) AS c(copy) ORDER BY copy, t.id`,
  );
  const write = (batchRows: number): Promise<string> =>
    writeSpec(folder, fixture, {
      input: { path: "in/many.parquet" },
      engine: { batch_size: batchRows },
      commit_rows: commitRows,
    });
  return {
    spec: await write(1),
    out: join(folder, "out"),
    async hurry() {
      await write(4096);
    },
    async slowDown() {
      await write(1);
    },
  };
}

interface Stopped extends CliResult {
  readonly stopMs: number;
}

/** Runs until `when` is seen on stderr, then sends a signal. */
async function stopAt(spec: string, when: RegExp, signal: NodeJS.Signals): Promise<Stopped> {
  let sentMs: number | undefined;
  const result = await runSpec(spec, {
    args: ["--log-level", "debug"],
    onStderr: (seen, child) => {
      if (sentMs === undefined && when.test(seen)) {
        sentMs = performance.now();
        child.kill(signal);
      }
    },
  });
  return { ...result, stopMs: performance.now() - (sentMs ?? Number.NaN) };
}

test.each([
  { signal: "SIGTERM", exit: 143 },
  { signal: "SIGINT", exit: 130 },
] as const)(
  "a run that is stopped ends with $exit within 5 s of $signal, keeps committed spans and can be resumed",
  async ({ signal, exit }) => {
    const job = await slowJob(scratch.path);
    const { spec, out } = job;

    const { code, stderr, stdout, stopMs } = await expectEnd(stopAt(spec, /span 3 committed/, signal), exit);
    expect(stopMs).toBeLessThan(5000);
    expect(stderr).toMatch(new RegExp(`stopping on ${signal}: committed spans are kept`));
    expect(JSON.parse(stdout)).toMatchObject({ status: "failed", code: signal, exit_code: code });
    const committed = (await partNames(out)).map(spanOfName);
    expect(committed.length).toBeGreaterThanOrEqual(4);
    expect(committed.length).toBeLessThan(rowCount / commitRows - 4);

    await job.hurry();
    const report = await scoreHere(spec);
    expect(report).toMatchObject({ status: "complete", spansResumed: committed.length });
    expect(report.rowsScored).toBe(rowCount - committed.length * commitRows);
    await expectAllRows(out);
  },
);

test("a run that is stopped while it resumes ends with 143 and without _SUCCESS", async () => {
  const job = await slowJob(scratch.path);
  const { spec, out } = job;
  await job.hurry();
  const kept = await leaveUnfinished(spec, out, (span) => span < 40);
  await job.slowDown();

  await expectEnd(stopAt(spec, /resuming run/, "SIGTERM"), 143);
  expect((await partNames(out)).slice(0, kept.length)).toEqual(kept);
  expect((await listing(out)).filter((line) => line.startsWith("_SUCCESS"))).toEqual([]);
  await job.hurry();
  await scoreHere(spec);
  await expectAllRows(out);
});

test("a run that is stopped by a second signal ends at once, by the signal itself", async () => {
  const spec = await longCall(scratch.path);
  let url: string | undefined;
  let toldAgainMs = Number.NaN;
  const tellTwice = async (metrics: string, child: RunningCli): Promise<void> => {
    await until(async () => /provider="cpu"/.test(await (await fetch(metrics)).text()));
    await sleep(500); // the model, which is there now, is inside a call that takes many seconds
    await tell(child, "SIGTERM");
    toldAgainMs = performance.now();
    child.kill("SIGTERM");
  };

  const { code, signal, stderr } = await runSpec(spec, {
    args: ["--metrics-port", "0"],
    onStderr: (seen, child) => {
      if (url === undefined) {
        url = /metrics: (\S+)/.exec(seen)?.[1];
        void (url === undefined ? undefined : tellTwice(url, child));
      }
    },
  });

  expect({ code, signal }).toEqual({ code: null, signal: "SIGTERM" });
  expect(stderr).toMatch(/^error: stopping at once on a second SIGTERM; committed spans are kept\n {2}hint: /m);
  expect(performance.now() - toldAgainMs, "five seconds after the first it ends anyhow").toBeLessThan(3000);
});

/** One batch, packed in one piece, of which the model makes a square matrix that it multiplies with itself sixty times. */
async function longCall(folder: string): Promise<string> {
  const rows = 2048; // as DuckDB hands them over
  const powers = Array.from({ length: 60 }, (_, index) => `power${index}`);
  const nodes = [
    { op: "Transpose", from: ["x"], to: "row" },
    { op: "MatMul", from: ["x", "row"], to: "square" },
    ...powers.map((to, index) => ({ op: "MatMul", from: [powers[index - 1] ?? "square", "square"], to })),
    { op: "MatMul", from: [powers.at(-1) ?? "", "x"], to: "score" },
  ];
  const { spec } = await smallJob(folder, {
    model: { ...identity, nodes },
    select: `SELECT row AS id, 0::FLOAT AS x FROM range(${rows}) AS t(row)`,
    engine: { batch_size: rows },
    commit_rows: rows,
  });
  return spec;
}

async function expectAllRows(out: string): Promise<void> {
  const once = await readRows(join(projectFolder, "fixtures/golden/diabetes-mlp.parquet"));
  const expected = Array.from({ length: copies }, (_, copy) =>
    once.map(({ id, score }) => ({ id: (id as bigint) + BigInt(442 * copy), score })),
  ).flat();
  expect(differences(await outputRows(out), expected)).toEqual([]);
  expect(await faultsOfFinished(out, rowCount)).toEqual([]);
}
