import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { publishedRun } from "./nights.js";
import { outputRows } from "./output.js";
import type { Database } from "./pg-database.js";
import type { Bucket } from "./s3.js";
import { mirror } from "./s3-target.js";

/** What a reader finds: the rows of each run, oldest run first, as in "442+50"; "nothing": it must not read now. */
export type Look = string;

/** What a reader of a folder finds that follows `_SUCCESS`: the rows of all parts, if `_SUCCESS` is the same after that. */
async function lookInFolder(folder: string): Promise<Look> {
  const runId = await publishedRun(folder);
  const rows = runId === undefined ? [] : await outputRows(folder).catch(() => []);
  if (runId === undefined || (await publishedRun(folder)) !== runId) {
    return "nothing";
  }
  const ids = new Map<unknown, unknown[]>();
  for (const { run_id: run, id } of rows) {
    ids.set(run, [...(ids.get(run) ?? []), id]);
  }
  return lookOf([...ids].map(([run, all]) => ({ run, n: all.length, ids: new Set(all).size })));
}

/** The same of a folder in a bucket. `scratch`: where it is copied to. */
export async function lookInBucket(bucket: Bucket, path: string, scratch: string): Promise<Look> {
  const success = async (): Promise<string> => {
    const bytes = await bucket.get(`${path}/_SUCCESS`).catch(() => new Uint8Array());
    return Buffer.from(bytes).toString("utf8");
  };
  const folder = await mkdtemp(join(scratch, "mirror-"));
  const before = await success();
  try {
    await mirror(bucket, path, folder);
  } catch {
    return "nothing"; // an object that was listed is gone: the reader looks again
  }
  return (await success()) === before ? await lookInFolder(folder) : "nothing";
}

/** What a reader of `scores.predictions` finds, without the rows of runs whose params have `date`. */
export async function lookInTable(reader: Database, date: string): Promise<Look> {
  return lookOf(
    await reader.query(
      `SELECT run_id AS run, count(*)::int AS n, count(DISTINCT id)::int AS ids FROM scores.predictions
        WHERE run_id NOT IN (SELECT run_id FROM infer_batch.runs WHERE params::text LIKE '%${date}%') GROUP BY 1`,
    ),
  );
}

/** The rows of each run, as `run_id` of each row tells; a key that comes twice in a run is a fault. */
function lookOf(rows: readonly Readonly<Record<string, unknown>>[]): Look {
  return rows
    .toSorted(({ run: one }, { run: other }) => numberOf(one) - numberOf(other))
    .map(({ run, n, ids }) => (n === ids ? String(n) : `${String(n)} rows of ${String(ids)} ids in ${String(run)}`))
    .join("+");
}

const numberOf = (runId: unknown): number => Number(/-r(\d+)$/.exec(String(runId))?.[1] ?? 1);
