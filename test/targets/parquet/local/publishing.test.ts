import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { OutputRows } from "#src/columns/types.js";
import type { DuckDBConnection } from "#src/duckdb/instance.js";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { RunId } from "#src/run/plan/plan.js";
import { spanAt } from "#src/run/plan/spans.js";
import { layoutOf } from "#src/targets/parquet/layout.js";
import type { Sink } from "#src/targets/target.js";
import { allLost, commitsSurvive } from "../../../support/luck.js";
import { partNames, spanOfName } from "../../../support/output.js";
import {
  beginDrive,
  type BegunRun,
  driveFolder,
  drivePlan,
  driveRows,
  driveSpans,
  openDriveSink,
} from "../../../support/sink-drive.js";
import { begun } from "../../../support/sinks.js";
import { sharedDuckDb } from "../../../support/sink-options.js";
import { type DiskRun, finish, onDisk } from "../../../support/sink-torture.js";

async function commit(run: BegunRun, span: number, rows: OutputRows = driveRows(span).rows): Promise<unknown> {
  return await run.commit(spanAt(drivePlan, span), { ...driveRows(span), rows });
}

/** Runs two attempts side by side: neither knew of the other's parts when it began. */
async function sideBySide({ root, disk: { fs } }: DiskRun, work: (one: BegunRun, other: BegunRun) => Promise<void>) {
  await using first = await openDriveSink(root, fs);
  await using second = await openDriveSink(root, fs);
  await work(await beginDrive(first), await beginDrive(second));
}

function duckDbWith(answer: (run: DuckDBConnection["run"]) => (sql: string) => Promise<unknown>) {
  return {
    ...sharedDuckDb,
    async connect() {
      const connection = await sharedDuckDb.connect();
      return Object.assign(connection, { run: answer(connection.run.bind(connection)) });
    },
  };
}

describe("a part that another attempt has linked", () => {
  test.each([
    { span: 0, what: "without rejects" },
    { span: 1, what: "with rejects" },
  ])("a part of an attempt that died before it flushed the name is adopted durably: one $what", async ({ span }) => {
    await onDisk(async (run) => {
      await sideBySide(run, async (one, other) => {
        run.disk.stopAfter(/^link lake\/out\/part-/);
        await expect(commit(one, span)).rejects.toThrow("the machine is off: sync");
        run.disk.kill();

        expect(await commit(other, span)).toBe("adopted");
        run.told.committed.add(span);
      });
      await run.disk.losePower(allLost);
      await run.check();
      await finish(run);
    });
  });

  test("a part of another attempt is checked before it is adopted", async () => {
    await onDisk(async (run) => {
      await sideBySide(run, async (one, other) => {
        await commit(one, 0);
        const part = (await readdir(driveFolder(run.root))).find((name) => name.startsWith("part-"));
        await writeFile(join(driveFolder(run.root), part ?? ""), "damaged");

        await expect(commit(other, 0)).rejects.toMatchObject({ code: "OUTPUT_DAMAGED" });
      });
    });
  });
});

test("the plan of an attempt that died before it flushed the name is durable before a part is", async () => {
  await onDisk(async (run) => {
    run.disk.stopAfter(/^link lake\/out\/_infer-batch\/.*plan/);
    await run.attempt();
    run.disk.kill();
    expect(await run.attempt({ spans: 1 })).toBeUndefined();
    await run.disk.losePower(allLost);
    await run.check();
    await finish(run);
  });
});

const reporters = [
  { number: 1, what: "finishes it too", isBegun: true },
  { number: 2, what: "finishes it too", isBegun: true },
  { number: 1, what: "finds it finished", isBegun: false },
  { number: 2, what: "finds it finished", isBegun: false },
];
test.each(reporters)("a finish of run $number is durable when another attempt $what", async ({ number, isBegun }) => {
  await onDisk(async ({ root, disk }) => {
    const plan = { ...drivePlan, runId: numberedRunId(drivePlan.runId, number) };
    await using first = await openDriveSink(root, disk.fs);
    await using second = await openDriveSink(root, disk.fs);
    const { run: one } = await begun(first, plan);
    const other = isBegun ? (await begun(second, plan)).run : undefined;
    for (let span = 0; span < driveSpans; span += 1) {
      await commit(one, span);
    }
    await other?.refresh();
    disk.stopAfter(/^rename lake\/out\/_SUCCESS/);
    await expect(one.finish()).rejects.toThrow("the machine is off: sync");
    disk.kill();

    await (other === undefined ? expectFinished(second, plan.runId) : other.finish());

    await disk.losePower(allLost);
    await using later = await openDriveSink(root, disk.fs);
    await expectFinished(later, plan.runId);
  });
});

async function expectFinished(sink: Sink, runId: RunId): Promise<void> {
  const stored = await sink.find(drivePlan.runId);
  expect(stored?.plan.runId).toBe(runId);
  expect(stored === undefined ? undefined : (await sink.open(stored)).state.kind).toBe("published");
}

test("a part whose name survives a power failure by chance has its rejects", async () => {
  await onDisk(async (run) => {
    run.disk.stopAfter(/^link lake\/out\/part-00001/);
    expect(await run.attempt()).toBeInstanceOf(Error);

    await run.disk.losePower(commitsSurvive);

    expect((await partNames(driveFolder(run.root))).map(spanOfName)).toEqual([0, 1]);
    await run.check();
    await finish(run);
  });
});

describe("a span that is not whole", () => {
  test("a span with fewer rows than the plan says is not published", async () => {
    await onDisk(async (run) => {
      await using sink = await openDriveSink(run.root, run.disk.fs);
      const { rows } = driveRows(0);
      const short = { ...rows, rowCount: rows.rowCount - 1 };

      await expect(commit(await beginDrive(sink), 0, short)).rejects.toThrow(/3 rows were written/);

      await run.check();
      expect((await readdir(driveFolder(run.root))).filter((name) => name.startsWith("part-"))).toEqual([]);
    });
  });

  test("a span of which DuckDB wrote fewer rows is not published", async () => {
    await onDisk(async (run) => {
      const duckdb = duckDbWith(
        (ask) => async (sql) => Object.defineProperty(await ask(sql), "rowsChanged", { value: 3 }),
      );
      await using sink = await openDriveSink(run.root, run.disk.fs, { duckdb });

      await expect(commit(await beginDrive(sink), 0)).rejects.toThrow(/3 rows were written/);

      expect((await readdir(driveFolder(run.root))).filter((name) => name.startsWith("part-"))).toEqual([]);
    });
  });

  test.each([
    { what: "spilled piece", shortCopy: 1, said: /1 rows were written of 2/ },
    { what: "last piece of a spilled span", shortCopy: 2, said: /3 rows were written/ },
  ])("a $what of which DuckDB wrote fewer rows is not published", async ({ shortCopy, said }) => {
    await onDisk(async (run) => {
      let copies = 0;
      const duckdb = duckDbWith((ask) => async (sql) => {
        copies += sql.startsWith("COPY") ? 1 : 0;
        const answer = await ask(sql);
        return copies === shortCopy ? Object.defineProperty(answer, "rowsChanged", { value: 1 }) : answer;
      });
      await using sink = await openDriveSink(run.root, run.disk.fs, { duckdb });
      const begunRun = await beginDrive(sink);
      const span = spanAt(drivePlan, 0);
      const inPieces = async (): Promise<unknown> => {
        await begunRun.spill(span, driveRows(0, [2, 3]).rows);
        return await commit(begunRun, 0, driveRows(0, [0, 1]).rows);
      };

      await expect(inPieces()).rejects.toThrow(said);

      expect((await readdir(driveFolder(run.root))).filter((name) => name.startsWith("part-"))).toEqual([]);
    });
  });
});

test("rejects of a dead attempt are removed when another one finishes the run without any, and stay removed", async () => {
  await onDisk(async (run) => {
    expect(await run.attempt({ spans: 2 })).toBeUndefined();
    const folder = join(driveFolder(run.root), "_rejects");
    const stale = join(folder, layoutOf("", drivePlan.runId).rejectsOf(2, "0".repeat(64)));
    await run.disk.fs.writeText(stale, "{}\n");
    await run.disk.fs.sync(stale);
    await run.disk.fs.sync(folder);

    await finish(run);

    await run.disk.losePower(allLost);
    await run.check();
  });
});

test.each([
  ["IO Error: Could not write file: No space left on device", "DISK", "the disk is full (ENOSPC)"],
  ["IO Error: Could not write file: Disk quota exceeded", "DISK", "the disk quota is used up (EDQUOT)"],
  ["IO Error: Could not write file: Input/output error", "DISK", "the disk reports an input/output error (EIO)"],
  ["IO Error: Cannot open file: Read-only file system", "PERMISSION", "the file system is read-only (EROFS)"],
  ["IO Error: Cannot open file: Permission denied", "PERMISSION", "permission denied (EACCES)"],
  ["IO Error: something else", "DISK", "something else"],
  ["Out of Memory Error: failed to allocate", "MEMORY", "failed to allocate"],
])("DuckDB's error (%s) is reported as the right error of this program", async (said, code, text) => {
  await onDisk(async (run) => {
    const duckdb = duckDbWith(() => () => Promise.reject(new Error(said)));
    await using sink = await openDriveSink(run.root, run.disk.fs, { duckdb });

    await expect(commit(await beginDrive(sink), 0)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(text),
    });
  });
});
