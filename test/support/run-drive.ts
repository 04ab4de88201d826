import { mkdir, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { SpanOutput } from "#src/columns/types.js";
import { numberedRunId, splitRunId } from "#src/run/plan/identity.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { spanAt } from "#src/run/plan/spans.js";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { scratchFolder } from "./job.js";
import { faultsOfFinished, outputRows, partNames } from "./output.js";
import {
  type BegunRun,
  beginUnlessFinished,
  driveFolder,
  drivePlan,
  driveRows,
  driveSpans,
  openDriveSink,
} from "./sink-drive.js";

export function runPlan(number: number): Plan {
  return { ...drivePlan, runId: numberedRunId(drivePlan.runId, number) };
}

/** Each run predicts other values, so that rows tell which run they are of. */
function scoreOf(row: number, number: number): number {
  return row / 2 + number * 1000;
}

function runOutput(span: number, number: number): SpanOutput {
  const output = driveRows(span);
  const columns = output.rows.columns.map((column) =>
    column.name === "score" && column.column.kind === "fixed"
      ? {
          ...column,
          column: {
            ...column.column,
            data: Float32Array.from(Array.from(column.column.data, Number), (half) => scoreOf(half * 2, number)),
          },
        }
      : column,
  );
  return { ...output, rows: { ...output.rows, columns } };
}

/** One attempt at one run, step by step. */
export interface RunAttempt extends AsyncDisposable {
  readonly run: BegunRun;
  commit(span: number): Promise<void>;
  /** Commits what is not committed and finishes. */
  rest(): Promise<void>;
}

/** Plans or finds run `number`, and begins it. `looks`: false plans it without searching, as `--new-run` does. */
export async function openAttempt(
  root: string,
  number: number,
  fs: FileSystem = nodeFileSystem,
  { looks = true } = {},
): Promise<RunAttempt> {
  const sink = await openDriveSink(root, fs);
  try {
    const plan = runPlan(number);
    const found = looks ? await sink.find(drivePlan.runId) : undefined;
    const stored = found?.plan.runId === plan.runId ? found : await sink.create(plan);
    const run = await beginUnlessFinished(sink, stored);
    const commit = async (span: number): Promise<void> => {
      await run.commit(spanAt(plan, span), runOutput(span, number));
    };
    return {
      run,
      commit,
      async rest() {
        if (run.state.kind === "published") {
          return;
        }
        for (let span = 0; span < driveSpans; span += 1) {
          if (!run.spans.has(span)) {
            await commit(span);
          }
        }
        await run.finish();
      },
      [Symbol.asyncDispose]: () => Promise.resolve(sink[Symbol.asyncDispose]()),
    };
  } catch (error) {
    await sink[Symbol.asyncDispose]();
    throw error;
  }
}

export async function carryOutRun(root: string, number: number, fs: FileSystem = nodeFileSystem): Promise<void> {
  await using attempt = await openAttempt(root, number, fs);
  await attempt.rest();
}

/** A folder with the runs before `number` finished. */
export async function onRunDisk(number: number, work: (root: string) => Promise<void>): Promise<void> {
  await using scratch = await scratchFolder();
  const root = join(scratch.path, "disk");
  await mkdir(root);
  for (let earlier = 1; earlier < number; earlier += 1) {
    await carryOutRun(root, earlier);
  }
  await work(root);
}

/** The number of the run that `_SUCCESS` names. */
export async function successOf(root: string): Promise<number | undefined> {
  const text = await readFile(join(driveFolder(root), "_SUCCESS"), "utf8").catch(() => undefined);
  return text === undefined ? undefined : splitRunId((JSON.parse(text) as { run_id: RunId }).run_id).number;
}

/** Faults that a reader finds who trusts a present `_SUCCESS`. Empty, too, when there is none. */
export async function faultsForReaders(root: string): Promise<string[]> {
  const number = await successOf(root);
  return number === undefined ? [] : await faultsOfRows(root, number);
}

/** Faults that keep the folder from being run `number`, finished, and nothing else. */
export async function faultsOfRun(root: string, number: number): Promise<string[]> {
  const success = await successOf(root);
  const faults = success === number ? [] : [`_SUCCESS is of run ${success}, expected ${number}`];
  const rejects = await readdir(join(driveFolder(root), "_rejects"));
  faults.push(...rejects.filter((name) => !isOf(name, number)).map((name) => `_rejects/${name}`));
  faults.push(...(await faultsOfRows(root, number)));
  return faults;
}

const isOf = (name: string, number: number): boolean => name.includes(`.${runPlan(number).runId}.`);

async function faultsOfRows(root: string, number: number): Promise<string[]> {
  const folder = driveFolder(root);
  const faults = (await partNames(folder)).filter((name) => !isOf(name, number));
  const rows = (await outputRows(folder)).map(({ id, score }) => `${String(id)} ${String(score)}`);
  const expected = Array.from({ length: 11 }, (_, row) => row)
    .filter((row) => row !== 5)
    .map((row) => `${row} ${scoreOf(row, number)}`);
  if (rows.join() !== expected.join()) {
    faults.push(`rows ${rows.join()}`);
  }
  faults.push(...(await faultsOfFinished(folder, expected.length).catch((error: unknown) => [String(error)])));
  return faults;
}
