import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { RejectedRow } from "#src/columns/types.js";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { latch } from "../../../support/waiting.js";
import { scratchFolder } from "../../../support/job.js";
import { allLost } from "../../../support/luck.js";
import { outputRows } from "../../../support/output.js";
import { rejectNames } from "../../../support/rejects.js";
import {
  type Attempt,
  drive,
  driveFolder,
  drivePlan,
  nothingTold,
  openDriveSink,
} from "../../../support/sink-drive.js";
import { onDisk, readingCall } from "../../../support/sink-torture.js";
import { tellingCalls, torture } from "../../../support/torture.js";
import { countSpans } from "#src/run/lifecycle/span-record.js";

/**
 * Two attempts may reject different rows of one span: `on_bad_row` and `cast` belong to the attempt, and another GPU
 * may give an infinity. Rows 4 to 7 are span 1.
 */
const one = { rejected: [5] };
const others = [{ rejected: [6] }, { rejected: [4, 7, 9] }, { rejected: [] }];

const allRows = Array.from({ length: 11 }, (_, row) => row);

/** Faults: each row must be in a part, or among the rejects of that part, never both. */
async function faults(root: string): Promise<string[]> {
  await using sink = await openDriveSink(root, nodeFileSystem);
  const stored = await sink.find(drivePlan.runId);
  if (stored === undefined) {
    return ["there is no plan"];
  }
  const run = await sink.open(stored);
  const rejects: RejectedRow[] = [];
  for await (const row of run.rejects()) {
    rejects.push(row);
  }
  const rejected = rejects.map(({ row }) => row);
  const kept = (await outputRows(driveFolder(root))).map(({ id }) => Number(id));
  const committed = allRows.filter((row) => run.spans.has(Math.floor(row / 4)));
  const rows = [...kept, ...rejected].toSorted((a, b) => a - b);
  const found = rows.join() === committed.join() ? [] : [`kept ${kept.join()}, rejected ${rejected.join()}`];
  if (countSpans(run.spans).rejected !== rejected.length) {
    found.push(`${countSpans(run.spans).rejected} rows are said to be rejected, ${rejected.length} are`);
  }
  return [...found, ...(run.state.kind === "published" ? await faultsOfFolder(root, rejects) : [])];
}

/** Faults of a finished run for those who read `_rejects/` and the manifest without this program. */
async function faultsOfFolder(root: string, rejects: readonly RejectedRow[]): Promise<string[]> {
  const folder = join(driveFolder(root), "_rejects");
  const names = await rejectNames(driveFolder(root));
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  const due = rejects.map((row) => `${JSON.stringify(row)}\n`).join("");
  const manifest = JSON.parse(await readFile(join(driveFolder(root), "_manifest.json"), "utf8")) as {
    rows_rejected: number;
  };
  return [
    ...(texts.join("") === due ? [] : [`_rejects/ holds ${names.join()}: ${texts.join("")}, due ${due}`]),
    ...(manifest.rows_rejected === rejects.length ? [] : [`the manifest says ${manifest.rows_rejected}`]),
  ];
}

async function attempt(root: string, fs: FileSystem, what: Pick<Attempt, "rejected" | "spans">): Promise<void> {
  await drive({ root, fs, told: nothingTold(), isDead: () => false, ...what });
}

async function callsOf(rejected: readonly number[]): Promise<string[]> {
  const calls: string[] = [];
  await onRoot(async (root) => {
    const fs = hookedDisk(root, {
      before: async (_at, call) => {
        calls.push(call);
      },
    });
    await attempt(root, fs, { rejected });
  });
  return calls;
}

async function onRoot(work: (root: string) => Promise<void>): Promise<void> {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "disk");
  await mkdir(root);
  await work(root);
}

/**
 * The first attempt stands still before its call `stop` while the second goes from its start to its call `pause`, or
 * its end; then the first commits its two spans, and the second goes on. The first does not come to finish the run,
 * which would clean up after itself.
 */
async function interleave(
  root: string,
  { stop, pause, rejected }: { stop: number; pause?: number; rejected: readonly number[] },
): Promise<void> {
  const paused = latch<void>();
  const ended = latch<void>();
  const second = hookedDisk(root, {
    async before(at) {
      if (at === pause) {
        paused.resolve(undefined);
        await ended.promise;
      }
    },
  });
  let other: Promise<void> | undefined;
  const first = hookedDisk(root, {
    async before(at) {
      if (at === stop) {
        other = attempt(root, second, { rejected }).finally(() => paused.resolve(undefined));
        await Promise.race([paused.promise, other]);
        expect(pause === undefined ? await faults(root) : []).toEqual([]);
      }
    },
  });
  await attempt(root, first, { ...one, spans: 2 }).finally(() => ended.resolve(undefined));
  await other;
}

function callOf(calls: readonly string[], pattern: RegExp): number {
  const found = calls.findIndex((call) => pattern.test(call));
  expect(found, String(pattern)).toBeGreaterThan(-1);
  return found;
}

describe("the rejects of a part are its own attempt's", () => {
  test.each(others)(
    "a part has the rejects of its own attempt although another attempt, which rejects $rejected, runs at any moment of it",
    async ({ rejected }) => {
      const calls = await callsOf(one.rejected);
      const all = [...calls.keys()].filter((at) => !readingCall.test(calls[at] ?? ""));
      const span = callOf(calls, /^link lake\/out\/_rejects\/part-00001/);
      const stops = torture ? all : all.filter((at) => Math.abs(at - span) < 3);
      const failures: string[] = [];
      await inParallel(stops, 2, async (stop) => {
        await onRoot(async (root) => {
          await interleave(root, { stop, rejected });
          failures.push(...(await faults(root)).map((fault) => `${stop} ${calls[stop]}: ${fault}`));
        }).catch((error: unknown) => {
          failures.push(`${stop} ${calls[stop]}: ${String(error)}`);
        });
      });
      expect(failures).toEqual([]);
    },
  );

  test("a part has the rejects of its own attempt when another one is about to publish at any moment", async () => {
    const calls = await callsOf(one.rejected);
    const stops = [/^link lake\/out\/_rejects\/part-00001/, /^link lake\/out\/part-00001/].map((call) =>
      callOf(calls, call),
    );
    const { rejected = [] } = others[1] ?? {};
    const theirs = await callsOf(rejected);
    const committing = callOf(theirs, /^writeText tmp\/part-00001-jsonl/);
    const changing = [...theirs.keys()].filter((at) => at > committing && !readingCall.test(theirs[at] ?? ""));
    const pauses = tellingCalls(changing, (at) => theirs[at] ?? "", { ends: true });
    const failures: string[] = [];
    await inParallel(
      stops.flatMap((stop, from) =>
        pauses.filter((_, index) => torture || index % 4 === 2 * from).map((pause) => ({ stop, pause })),
      ),
      2,
      async ({ stop, pause }) => {
        await onRoot(async (root) => {
          await interleave(root, { stop, pause, rejected });
          failures.push(...(await faults(root)).map((fault) => `${calls[stop]}, ${theirs[pause]}: ${fault}`));
        }).catch((error: unknown) => {
          failures.push(`${calls[stop]}, ${theirs[pause]}: ${String(error)}`);
        });
      },
    );
    expect(failures).toEqual([]);
  });

  test("a part has its rejects when one attempt is killed between both, and power fails after another's", async () => {
    await onDisk(async (run) => {
      run.disk.stopBefore(/^link lake\/out\/part-00001/);
      expect(await run.attempt(one)).toBeInstanceOf(Error);
      run.disk.kill();
      expect(await run.attempt({ rejected: [6], spans: 1 })).toBeUndefined();
      await run.disk.losePower(allLost);
      expect(await faults(run.root)).toEqual([]);

      await drive({ root: run.root, fs: run.disk.fs, told: run.told });

      await run.disk.losePower(allLost);
      expect(await faults(run.root)).toEqual([]);
      expect(run.told.finished).toBe(true);
    });
  });

  test("a part has its rejects when a finisher is killed before it flushed the removal of stale ones", async () => {
    await onDisk(async (run) => {
      run.disk.stopBefore(/^link lake\/out\/part-00001/);
      expect(await run.attempt(one)).toBeInstanceOf(Error);
      run.disk.kill();
      // The folder's second flush is that of the finish: this attempt rejects nothing.
      run.disk.stopBefore(/^sync lake\/out\/_rejects$/);
      expect(await run.attempt({ rejected: [] })).toBeInstanceOf(Error);
      run.disk.kill();
      expect(await run.attempt({ rejected: [] })).toBeUndefined();

      await run.disk.losePower(allLost);

      expect(await faults(run.root)).toEqual([]);
      expect(await rejectNames(driveFolder(run.root))).toEqual([]);
    });
  });
});
