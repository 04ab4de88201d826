import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { looking, ofNextRun } from "#src/job/chain.js";
import { openLoaded } from "#src/job/open.js";
import { readSpec } from "#src/job/reading.js";
import { runJob } from "#src/run/run.js";
import { type CliResult, runCommand } from "../support/cli.js";
import { type GrowingLake, growingLake, lakeKinds, missing, skipped } from "../support/lake-writers.js";
import { scratch } from "../support/job.js";
import { appsOfDelta, diskTable, rowsOfDelta, writeLakeJob } from "../support/lakes.js";
import { outputRows } from "../support/output.js";

const columns = ["x", "id"];
const held = { checks: { on_fail: "hold", outputs: { score: { range: [-2, -1] } } } };

async function job(lake: Pick<GrowingLake, "table">, more: object = {}, input: object = {}): Promise<string> {
  return await writeLakeJob(scratch.path, {
    table: lake.table,
    columns,
    input: { since: "last_run", ...input },
    more: { commit_rows: 50, ...more },
  });
}

async function run(spec: string, ...options: readonly string[]): Promise<CliResult & { readonly status: unknown }> {
  const ran = await runCommand(["run", spec, "--json", "--no-progress", ...options]);
  const line = ran.stdout.trim().split("\n").at(-1) ?? "";
  return { ...ran, status: line === "" ? undefined : (JSON.parse(line) as { status: string }).status };
}

/** So many runs, of 100 rows each. */
async function severalRuns(lake: GrowingLake, spec: string, count: number): Promise<void> {
  for (let start = 0; start < count * 100; start += 100) {
    await lake.act(`append ${start} 100`);
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
  }
}

async function runFolders(): Promise<string[]> {
  const names = await readdir(join(scratch.path, "out")).catch(() => []);
  return names.filter((name) => name.startsWith("run=")).toSorted();
}

/** The ids of all rows that readers find, in order. */
async function ids(): Promise<number[]> {
  const all = await Promise.all(
    (await runFolders()).map(async (folder) => {
      const names = await readdir(join(scratch.path, "out", folder));
      return names.includes("_SUCCESS") ? await outputRows(join(scratch.path, "out", folder)) : [];
    }),
  );
  return all
    .flat()
    .map(({ id }) => Number(id))
    .toSorted((left, right) => left - right);
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}

describe.skipIf(missing !== undefined).each(lakeKinds)(`runs with input.since of a table, %s${skipped}`, (kind) => {
  test("each read what is new, and nothing where nothing is", async () => {
    const lake = await growingLake(kind, scratch.path);
    const spec = await job(lake);
    expect(await run(spec)).toMatchObject({ code: 0, status: "nothing_new" });
    expect(await runFolders()).toEqual([]);
    expect(await runCommand(["status", spec, "--expect-by", "00:00"])).toMatchObject({ code: 67 });

    await lake.act("append 0 60", "append 60 60");
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await run(spec)).toMatchObject({ code: 0, status: "nothing_new" });
    await rm(join(scratch.path, "model.onnx"));
    await lake.act("compact");
    expect(await run(spec), "a compaction is nothing new, and needs no model").toMatchObject({ status: "nothing_new" });
    for (let cleanUp = 0; cleanUp < 2; cleanUp += 1) {
      await lake.act(kind === "delta" ? "checkpoint" : "expire");
      expect(await run(spec), "what was looked through is gone").toMatchObject({ code: 0, status: "nothing_new" });
      await lake.act("touch");
      expect(await run(spec)).toMatchObject({ code: 0, status: "nothing_new" });
    }
    await job(lake);
    await lake.act("append 120 60", "append 180 60", "compact");
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 240));
    expect(await runFolders()).toEqual(["run=00000001", "run=00000002"]);

    const state = await runCommand(["status", spec, "--json"]);
    expect(JSON.parse(state.stdout)).toMatchObject({ status: "published", rows: 120 });
    const expected = await runCommand(["status", spec, "--expect-by", "00:00"]);
    expect(expected, "the last run of a chain is published").toMatchObject({ code: 0 });
    const first = await runCommand(["status", spec, "--json", "--param", "run=1"]);
    expect(JSON.parse(first.stdout)).toMatchObject({ status: "published", rows: 120 });
    const history = await runCommand(["history", spec, "--json"]);
    expect(JSON.parse(history.stdout)).toMatchObject({ runs: [{ params: { run: "2" } }, { params: { run: "1" } }] });
    await lake.act("append 240 10");
    const plan = await runCommand(["plan", spec, "--json"]);
    expect(JSON.parse(plan.stdout), plan.stderr).toMatchObject({ params: { run: "3" }, input: { rows: 10 } });
    expect(await runFolders()).toHaveLength(2);
  });

  test("are refused after a delete, until the files are read as they are, or the whole table", async () => {
    const lake = await growingLake(kind, scratch.path);
    const spec = await job(lake);
    await lake.act("append 0 100");
    expect(await run(spec)).toMatchObject({ code: 0 });
    await lake.act("append 100 50", "delete 3 5");
    const refused = await run(spec);
    expect(refused).toMatchObject({ code: 66, status: "failed" });
    expect(refused.stderr).toMatch(/new_files[^]*job\.yaml --new-run/);
    expect(await ids()).toEqual(range(0, 100));

    const twice = await run(spec, "--new-run");
    expect(twice).toMatchObject({ code: 64 });
    expect(twice.stderr).toContain("--allow-duplicates");
    expect(await run(spec, "--new-run", "--allow-duplicates")).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toHaveLength(100 + 148);
    await lake.act("append 150 10");
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toHaveLength(100 + 148 + 10);

    await lake.act("delete 5 6");
    expect(await run(spec)).toMatchObject({ code: 66 });
    const other = await job(lake, {}, { on_rewrite: "new_files" });
    expect(await run(other)).toMatchObject({ code: 0, status: "complete" });
  });
});

describe.skipIf(missing !== undefined)(`runs with input.since${skipped}`, () => {
  test("a held run stops the next one; after discard its rows come again, after discard --skip they do not", async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 100");
    const spec = await job(lake, held);
    expect(await run(spec)).toMatchObject({ code: 67, status: "held" });
    await lake.act("append 100 100");
    const again = await run(spec);
    expect(again).toMatchObject({ code: 67, status: "held" });
    expect(again.stderr).toContain("--param run=1");
    expect(await runCommand(["approve", spec])).toMatchObject({ code: 0 });
    expect(await ids()).toEqual(range(0, 100));

    expect(await run(spec)).toMatchObject({ code: 67, status: "held" });
    const discarded = await runCommand(["discard", spec, "--reason", "wrong"]);
    expect(discarded, discarded.stderr).toMatchObject({ code: 0 });
    await lake.act("append 200 100");
    const third = await run(spec);
    expect(third, third.stderr).toMatchObject({ code: 67, status: "held" });
    expect(JSON.parse(third.stdout)).toMatchObject({ rows_planned: 200 });
    expect(await runCommand(["discard", spec, "--skip"])).toMatchObject({ code: 0 });
    expect(await runCommand(["discard", spec])).toMatchObject({ code: 66 });
    await lake.act("append 300 100");
    expect(await run(spec)).toMatchObject({ code: 67 });
    expect(await runCommand(["approve", spec])).toMatchObject({ code: 0 });
    expect(await ids()).toEqual([...range(0, 100), ...range(300, 400)]);
    expect(await run(spec)).toMatchObject({ code: 0, status: "nothing_new" });
  });

  test("a held run is scored again with --new-run, with the same rows", async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 100");
    const spec = await job(lake, held);
    expect(await run(spec)).toMatchObject({ code: 67, status: "held" });
    await lake.act("append 100 100");
    expect(await run(await job(lake, { checks: { on_fail: "hold" } }), "--new-run")).toMatchObject({ code: 0 });
    expect(await ids()).toEqual(range(0, 100));
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 200));
    const over = await run(spec, "--new-run", "--param", "run=1");
    expect(over).toMatchObject({ code: 64 });
  });

  test("a published run that was damaged is replaced with --new-run, with the same rows", async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 100");
    const spec = await job(lake);
    expect(await run(spec)).toMatchObject({ code: 0 });
    await lake.act("append 100 100");
    const folder = join(scratch.path, "out/run=00000001");
    const part = (await readdir(folder)).find((name) => name.startsWith("part-")) ?? "";
    await rm(join(folder, part));
    const refused = await run(spec);
    expect(refused).toMatchObject({ code: 66, status: "failed" });
    expect(refused.stderr).toMatch(/--new-run/);
    expect(await runCommand(["plan", spec])).toMatchObject({ code: 66 });
    const replaced = await run(spec, "--new-run");
    expect(replaced, replaced.stderr).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 100));
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 200));
  });

  test("a run whose rows were compacted and cleaned up before it was finished is replaced by one of all rows", async () => {
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake, { commit_rows: 20 });
    await lake.act("append 0 50", "append 50 50");
    expect(await run(spec, "--worker", "0/2")).toMatchObject({ code: 0, status: "partial" });
    await lake.act("compact", "vacuum");
    expect(await run(spec)).toMatchObject({ code: 66 });
    expect(await run(spec, "--new-run"), "no earlier run has rows").toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 100));
    expect(await run(spec)).toMatchObject({ status: "nothing_new" });

    await lake.act("append 100 50", "append 150 50");
    expect(await run(spec, "--worker", "0/2")).toMatchObject({ code: 0, status: "partial" });
    await lake.act("append 200 10", "compact", "vacuum");
    expect(await run(spec)).toMatchObject({ code: 66 });
    expect(await run(spec, "--new-run")).toMatchObject({
      code: 64,
      stderr: expect.stringContaining("--allow-duplicates") as string,
    });
    expect(await run(spec, "--new-run", "--allow-duplicates")).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toHaveLength(100 + 210);
    await lake.act("append 210 10");
    const next = await run(spec);
    expect(next, next.stderr).toMatchObject({ code: 0, status: "complete" });
    expect(JSON.parse(next.stdout)).toMatchObject({ rows_planned: 10 });
  });

  test("an attempt plans the range that another one has stored first, though the table has more rows now", async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 100");
    const spec = await job(lake);
    const { loaded, chain } = await ofNextRun(await readSpec(spec, { param: [] }), spec, looking);
    await using slow = await openLoaded(loaded, spec, { chain });
    await using source = diskTable(lake.table);
    const { changes } = await source.list([lake.table], { changes: { from: null, to: null, onRewrite: "fail" } });
    await chain?.claim(changes?.to ?? "", { at: "2026-11-30T00:00:00Z", writer: "killed before its plan" });
    await lake.act("append 100 50");
    expect(await runJob(slow)).toMatchObject({ rowsPlanned: 100 });
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 150));

    await lake.act("append 150 50");
    const next = await ofNextRun(await readSpec(spec, { param: [] }), spec, looking);
    const newest = await source.list([lake.table], { changes: { from: null, to: null, onRewrite: "fail" } });
    const to = `0${newest.changes?.to}`; // the same version, in other words
    await next.chain?.claim(to, { at: "2026-11-30T00:00:00Z", writer: "killed before its plan" });
    expect(await run(spec), "not planned for ever").toMatchObject({ code: 1 });
  });

  test("a range that is gone is stored again, and one of another table is not planned", async () => {
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake);
    await severalRuns(lake, spec, 2);
    const removeRange = async (number: number): Promise<void> => {
      const notes = await readdir(join(scratch.path, "out"), { recursive: true });
      const note = notes.find((name) => name.includes(`-r${number}`) && name.includes("range"));
      await rm(join(scratch.path, "out", note ?? ""));
    };
    await removeRange(2);
    await lake.act("append 200 100");
    expect(await run(spec)).toMatchObject({ code: 0, status: "already_complete" });
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 300));

    expect(await run(spec, "--new-run", "--allow-duplicates")).toMatchObject({ code: 0, status: "complete" });
    await removeRange(4);
    const other = await run(spec);
    expect(other).toMatchObject({ code: 66, stderr: expect.stringContaining("notes of the chain") as string });
    await rm(join(scratch.path, "out/run=00000004"), { recursive: true });

    const { chain } = await ofNextRun(await readSpec(spec, { param: [] }), spec, looking);
    await chain?.claim("5 of-another-table", { at: "2026-11-30T00:00:00Z", writer: "killed before its plan" });
    await lake.act("append 300 100", "append 400 100");
    expect(await run(spec)).toMatchObject({ code: 66, stderr: expect.stringContaining("another table") as string });
  });

  test("a folder of a run that was removed is scored again by its number", async () => {
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake);
    await severalRuns(lake, spec, 3);
    await rm(join(scratch.path, "out/run=00000002"), { recursive: true });
    expect(await run(spec)).toMatchObject({ status: "nothing_new" });
    expect(await run(spec, "--param", "run=2")).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual(range(0, 300));
    expect(await run(spec, "--param", "run=4")).toMatchObject({ code: 64 });
  });

  test.each([
    [{ input: { at: "12" } }, /input\.at.*newest/],
    [{ input: { wait: "1m" } }, /input\.wait/],
    [{ more: { params: { ds: "${today}" } } }, /params\.ds.*no date/],
    [{ more: { params: { run: "1" } } }, /params\.run/],
    [{ more: { reuse: { key: ["id"] } } }, /reuse/],
    [{ more: { output: { postgres: { table: "p", mode: "replace" } } } }, /postgres\.mode.*append/],
    [{ more: { output: { delta: { path: "d", mode: "replace", partition: { of: "all" } } } } }, /delta\.mode.*append/],
  ])("%j is refused", async ({ input = {}, more = {} }: { input?: object; more?: object }, message) => {
    const spec = await job({ table: "t" }, more, input);
    expect(await run(spec)).toMatchObject({ code: 64, stderr: expect.stringMatching(message) as string });
  });

  test.each([["prune", "--keep", "1"], ["rollback"], ["backfill", "--param", "run=1..2"]])(
    "%s refuses them",
    async (...command) => {
      const spec = await job({ table: "t" });
      const [verb = "", ...options] = command;
      expect(await runCommand([verb, spec, ...options])).toMatchObject({ code: 64 });
    },
  );
});

describe.skipIf(missing !== undefined)(`the checks of runs with input.since${skipped}`, () => {
  test("judge all rows of a day so far, also where a run was killed, until one is approved", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake, { checks: {}, report: { html: "page.html" } });
    let rows = 0;
    const runAt = async (day: number, hour: number, more: number, ...options: string[]): ReturnType<typeof run> => {
      vi.setSystemTime(Date.UTC(2026, 10, 1 + day, hour, 5));
      await lake.act(`append ${rows} ${more}`);
      rows += more;
      return await run(spec, ...options);
    };
    for (let day = 0; day < 5; day += 1) {
      for (const hour of [0, 6, 12, 18]) {
        const ran = await runAt(day, hour, 120 + ((day + hour) % 5));
        expect(ran, ran.stderr).toMatchObject({ code: 0, status: "complete" });
      }
    }
    expect(await runAt(5, 0, 230)).toMatchObject({ code: 0, stderr: expect.stringContaining("doubled") as string });
    expect(await runAt(5, 6, 230, "--worker", "0/2")).toMatchObject({ code: 0, status: "partial" });
    const stopped = await run(spec);
    expect(stopped, stopped.stderr).toMatchObject({ code: 67, status: "held" });
    expect(stopped.stderr).toMatch(
      /460 rows; the nearest night had 2\d\d \(2026-11-0[2-5]\)[^]*all rows of 2026-11-06 so far/,
    );
    expect(await runCommand(["approve", spec])).toMatchObject({ code: 0 });
    expect(await runAt(5, 12, 230)).toMatchObject({ code: 0, status: "complete" });
    expect(await runAt(5, 18, 230)).toMatchObject({ code: 0, status: "complete" });
    expect(await readFile(join(scratch.path, "page.html"), "utf8")).toContain("PUBLISHED. 230 predictions");
    for (const hour of [0, 6, 12, 18]) {
      expect(await runAt(6, hour, 230), "as the day before").toMatchObject({ code: 0, status: "complete" });
    }
  });
});

describe.skipIf(missing !== undefined)(`the output of runs with input.since${skipped}`, () => {
  test("is erased run by run, and the next run goes on behind them", async () => {
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake);
    await severalRuns(lake, spec, 2);
    await lake.act("touch");
    expect(await run(spec)).toMatchObject({ code: 0, status: "nothing_new" });
    await lake.act("checkpoint");
    await writeFile(join(scratch.path, "keys.csv"), "id\n7\n150\n");
    const erased = await runCommand(["erase", spec, "--keys", join(scratch.path, "keys.csv")]);
    expect(erased, erased.stderr).toMatchObject({ code: 0 });
    const left = range(0, 200).filter((id) => id !== 7 && id !== 150);
    expect(await ids()).toEqual(left);
    expect(await run(spec)).toMatchObject({ status: "nothing_new" });
    await lake.act("append 200 10");
    expect(await run(spec)).toMatchObject({ code: 0, status: "complete" });
    expect(await ids()).toEqual([...left, ...range(200, 210)]);
  });

  test("may be a Delta table, where history finds the runs", async () => {
    const lake = await growingLake("delta", scratch.path);
    const spec = await job(lake, { output: { columns, delta: { path: "out" } } });
    await severalRuns(lake, spec, 2);
    expect(await run(spec)).toMatchObject({ status: "nothing_new" });
    const history = await runCommand(["history", spec, "--json"]);
    expect(JSON.parse(history.stdout)).toMatchObject({ runs: [{ params: { run: "2" } }, { params: { run: "1" } }] });
    const { runs } = JSON.parse(history.stdout) as { runs: { run_id: string }[] };
    const stats = await runCommand(["stats", spec, "--run", runs[1]?.run_id ?? ""]);
    expect(stats, stats.stderr).toMatchObject({ code: 0 });
  });

  test("add the rows of each range once to a Delta table, also where what is known of a run is gone", async () => {
    const lake = await growingLake("delta", scratch.path);
    const table = join(scratch.path, "out");
    const output = { output: { columns, delta: { path: table } } };
    const scored = async (): Promise<number[]> =>
      (await rowsOfDelta(table)).map(({ id }) => Number(id)).toSorted((left, right) => left - right);
    await lake.act("append 0 100");
    expect(await run(await job(lake, output))).toMatchObject({ code: 0 });
    await lake.act("append 100 100");
    expect(await run(await job(lake, { ...output, ...held }))).toMatchObject({ code: 67 });
    expect(await run(await job(lake, output), "--new-run")).toMatchObject({ code: 0, status: "complete" });
    expect(await scored()).toEqual(range(0, 200));

    await lake.act("append 200 100");
    const spec = await job(lake, { ...output, ...held });
    expect(await run(spec)).toMatchObject({ code: 67 });
    const [appId = ""] = await appsOfDelta(table);
    const later = { txn: { appId, version: 4_000_001, lastUpdated: 0 } };
    const log = join(table, "_delta_log");
    await writeFile(join(log, `${"2".padStart(20, "0")}.json`), `${JSON.stringify(later)}\n`);
    const approved = await runCommand(["approve", spec]);
    expect(approved).toMatchObject({ code: 66, stderr: expect.stringContaining("rows of run 4 of lake-") as string });
    await rm(join(table, "_infer-batch"), { recursive: true });
    const anew = await run(spec);
    expect(anew).toMatchObject({ code: 66, stderr: expect.stringContaining("what is known of it is gone") as string });
    expect(await scored()).toEqual(range(0, 200));
  });

  test("is not that of runs without it, nor the other way round", async () => {
    const lake = await growingLake("delta", scratch.path, "append 0 10");
    const plain = { since: undefined };
    expect(await run(await job(lake, {}, plain))).toMatchObject({ code: 0 });
    expect(await run(await job(lake))).toMatchObject({ code: 64 });
    const other = { output: { columns, parquet: { path: "out2" } } };
    expect(await run(await job(lake, other))).toMatchObject({ code: 0 });
    expect(await run(await job(lake, other, plain))).toMatchObject({ code: 64 });
  });
});
