import { mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../../support/cli.js";
import { identity, smallJob } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { lastJson } from "../../support/nights.js";
import { query, writeRows } from "../../support/parquet.js";
import { torture } from "../../support/torture.js";

/** INFER_BATCH_TORTURE=1: a year, with a month that is backfilled. */
const nights = torture ? 365 : 26;
const gap = torture ? { from: 200, to: 230 } : { from: 17, to: 20 };
const [damaged, late, badRow] = torture ? [20, 80, 140] : [2, 4, 6];
const [wrongUnit, halfTable] = torture ? [100, 300] : [11, 14];

function dateOf(night: number): string {
  return new Date(Date.UTC(2025, 0, 1 + night)).toISOString().slice(0, 10);
}

/** Fewer rows at weekends. */
function rowsOf(night: number): number {
  return new Date(Date.UTC(2025, 0, 1 + night)).getUTCDay() % 6 === 0 ? 240 : 300;
}

function selectOf(night: number, { value = "x", where = "true" } = {}): string {
  const x = `(50 + (hash(i * 1000 + ${night}) % 1000) / 20.0)::DOUBLE`;
  return `SELECT id, ${value} AS x FROM (SELECT i::BIGINT AS id, ${x} AS x FROM range(${rowsOf(night)}) t(i)) WHERE ${where}`;
}

/** The files below a folder, with their sizes in bytes. */
async function filesIn(folder: string): Promise<ReadonlyMap<string, number>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  return new Map(await Promise.all(files.map(async (file) => [file, (await stat(file)).size] as const)));
}

test("a job runs for months by its commands alone: failures, a backfill, bad nights, and prune", async () => {
  const { spec } = await smallJob(scratch.path, {
    model: identity,
    select: selectOf(0),
    params: { ds: "${today}" },
    commit_rows: 100,
    input: { path: "in/dt=${ds}/*.parquet" },
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    checks: {},
  });
  const input = (night: number): string => join(scratch.path, "in", `dt=${dateOf(night)}`, "a.parquet");
  const arrive = async (night: number, changed = {}): Promise<void> => {
    await mkdir(join(input(night), ".."), { recursive: true });
    await writeRows(input(night), selectOf(night, changed));
  };
  const command = (verb: string, night: number, ...options: string[]): Promise<CliResult> =>
    runHere([verb, spec, "--param", `ds=${dateOf(night)}`, ...options]);
  const expectRun = async (night: number, code: number, ...options: string[]): Promise<void> => {
    const result = await command("run", night, "--json", ...options);
    expect(result.code, `${dateOf(night)}: ${result.stderr}`).toBe(code);
  };

  for (let night = 0; night < nights; night += 1) {
    if (night >= gap.from && night < gap.to) {
      await arrive(night); // the job is switched off
      continue;
    }
    if (night === damaged) {
      await mkdir(join(input(night), ".."), { recursive: true });
      await writeFile(input(night), "PAR1 and no more");
      await expectRun(night, 65);
    } else if (night === late) {
      await expectRun(night, 75);
    } else if (night === badRow) {
      await arrive(night, { value: "CASE WHEN id = 210 THEN NULL ELSE x END" });
      await expectRun(night, 65);
      await arrive(night);
      await expectRun(night, 66);
      await expectRun(night, 0, "--new-run");
      continue;
    } else if (night === wrongUnit) {
      await arrive(night, { value: "x * 1000" });
      await expectRun(night, 67);
      await expectEnd(command("discard", night, "--reason", "grams"), 0);
      await expectRun(night, 67);
      await arrive(night);
      await expectRun(night, 0, "--new-run");
      continue;
    } else if (night === halfTable) {
      await arrive(night, { where: "id < 100" });
      await expectRun(night, 67);
      await expectEnd(command("approve", night, "--reason", "a holiday"), 0);
      await expectRun(night, 0);
      continue;
    }
    await arrive(night);
    await expectRun(night, 0);
  }
  const last = nights - 1;
  const range = `ds=${dateOf(gap.from)}..${dateOf(gap.to - 1)}`;
  await expectEnd(runHere(["backfill", spec, "--param", range, "--json"]), 0);

  const datesOf = async (status: string): Promise<string[]> => {
    const { runs } = lastJson(await command("history", last, "--last", "1000", "--json")) as {
      runs: readonly { readonly params: { readonly ds: string }; readonly status: string }[];
    };
    return runs.filter((run) => run.status === status).map(({ params }) => params.ds);
  };
  expect((await datesOf("published")).toSorted()).toEqual(Array.from({ length: nights }, (_, night) => dateOf(night)));
  expect(await datesOf("discarded")).toEqual([dateOf(wrongUnit)]);

  const [wrong] = await query(
    `SELECT count(*)::INTEGER AS rows FROM
       (SELECT dt, id, x FROM read_parquet('${scratch.path}/in/*/*.parquet', hive_partitioning = true)) i
       FULL JOIN (SELECT dt, id, score FROM read_parquet('${scratch.path}/out/*/*.parquet', hive_partitioning = true)) o
       ON i.dt = o.dt AND i.id = o.id
     WHERE i.id IS NULL OR o.id IS NULL OR abs(x - score) > 1e-4`,
  );
  expect(wrong).toEqual({ rows: 0 });
  await rm(join(scratch.path, "in"), { recursive: true });
  await expectRun(nights - 1, 0); // a published run needs no input

  const [rowsBefore, rowsLast] = [rowsOf(last - 1), rowsOf(last)];
  const diff = await expectEnd(command("diff", last, "--against", `ds=${dateOf(last - 1)}`, "--json"), 0);
  expect(lastJson(diff)).toMatchObject({
    rows_a: rowsBefore,
    rows_b: rowsLast,
    rows_gone: Math.max(0, rowsBefore - rowsLast),
    rows_added: Math.max(0, rowsLast - rowsBefore),
    rows_compared: Math.min(rowsBefore, rowsLast),
  });

  const kept = 5;
  const out = join(scratch.path, "out");
  const before = await filesIn(out);
  const pruned = await expectEnd(runHere(["prune", spec, "--keep", String(kept), "--json"]), 0);
  const after = await filesIn(out);
  const gone = [...before].filter(([file]) => !after.has(file));
  expect(lastJson(pruned)).toMatchObject({ files: gone.length, bytes: gone.reduce((sum, [, size]) => sum + size, 0) });
  const isRecord = /\/_infer-batch\/[^/]+\/plan\.json$/;
  expect([...after.keys()].filter((file) => !before.has(file) && !isRecord.test(file))).toEqual([]);
  const parts = await query(`SELECT DISTINCT dt::VARCHAR AS dt FROM read_parquet('${scratch.path}/out/*/*.parquet',
    hive_partitioning = true) ORDER BY dt`);
  const lastNights = Array.from({ length: kept }, (_, night) => dateOf(nights - kept + night));
  expect(parts.map(({ dt }) => dt)).toEqual(lastNights);
  expect((await datesOf("published")).toSorted()).toEqual(lastNights);
  await expectRun(0, 67);
}, 600_000);
