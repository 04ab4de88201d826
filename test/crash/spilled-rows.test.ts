import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type CliResult, type RunningCli, runCli, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { writeLongRows, writeLongValuesSpec } from "../support/long-values.js";
import { query } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import { s3Env, useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const s3 = useS3();

/** Spans of 9 MB, of which 4 MiB are held at once: each is spilled twice before its last rows. */
const memory = "64MiB";
const shards = 2;
const shardRows = 90;
const bodyBytes = 150_000;
const commitRows = 60;
const rows = shards * shardRows;

/** How many spans had spilled rows when the process is killed; `short`: in the short form. */
const momentsOf = (short: readonly number[]): readonly number[] => (torture ? [1, 2, 3] : short);

interface Target {
  /** The key `output` of the spec, besides its columns. */
  readonly output: object;
  readonly env: Readonly<Record<string, string>>;
  readonly isSpilled: (path: string) => boolean;
  /** Rows of the output, `id` and `bytes` of the body. */
  found(): Promise<readonly { readonly id: number; readonly bytes: number }[]>;
}

async function writeJob(folder: string, { output }: Target): Promise<string> {
  await mkdir(join(folder, "in"));
  const body = `repeat(chr(97 + (range % 26)::INT), ${bodyBytes})`;
  for (let shard = 0; shard < shards; shard += 1) {
    const range = { from: shard * shardRows, to: (shard + 1) * shardRows };
    const options = "COMPRESSION snappy, DICTIONARY_SIZE_LIMIT 0";
    await writeLongRows(join(folder, `in/${shard}.parquet`), { body, ...range, options });
  }
  return await writeLongValuesSpec(folder, {
    engine: { memory },
    output: { columns: ["id", "body"], ...output },
    commit_rows: commitRows,
  });
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

async function killAt(folder: string, spec: string, target: Target, spans: number): Promise<CliResult> {
  const seen = new Set<string>();
  const over = new AbortController();
  const watch = async (child: RunningCli): Promise<void> => {
    while (!over.signal.aborted && seen.size < spans) {
      const paths = (await filesBelow(folder)).filter(target.isSpilled);
      paths.forEach((path) => seen.add(path));
      await sleep(2);
    }
    child.kill("SIGKILL");
  };
  const result = await runCli(["run", spec, "--no-progress"], {
    env: target.env,
    onStart: (child) => void watch(child),
  });
  over.abort();
  return result;
}

function expectOnce(found: readonly { readonly id: number; readonly bytes: number }[]): void {
  expect(found.filter(({ bytes }) => bytes !== bodyBytes)).toEqual([]);
  expect(new Set(found.map(({ id }) => id)).size).toBe(found.length);
}

async function killAndFinish(folder: string, target: Target, spans: number): Promise<void> {
  const spec = await writeJob(folder, target);
  const killed = await killAt(folder, spec, target, spans);
  expect(killed.signal, killed.stderr).toBe("SIGKILL");
  const left = (await filesBelow(folder)).filter(target.isSpilled);
  expectOnce(await target.found());

  const { code, stderr } = await runHere(["run", spec, "--quiet"], { env: target.env });

  expect([code, stderr]).toEqual([0, ""]);
  const found = await target.found();
  expectOnce(found);
  expect(found).toHaveLength(rows);
  expect(left.length).toBeGreaterThan(0);
  expect((await filesBelow(folder)).filter(target.isSpilled)).toEqual([]);
}

async function rowsOf(paths: readonly string[]): Promise<{ id: number; bytes: number }[]> {
  if (paths.length === 0) {
    return [];
  }
  const list = paths.map((path) => `'${path}'`).join(", ");
  const found = await query(`SELECT id, len(body) AS bytes FROM read_parquet([${list}])`);
  return found.map(({ id, bytes }) => ({ id: Number(id), bytes: Number(bytes) }));
}

test.each(momentsOf([2]))(
  "a process that is killed with spilled rows of span %i, on a disk, leaves a run that has each row once",
  async (spans) => {
    const target: Target = {
      output: { parquet: { path: "out" } },
      env: { TMPDIR: scratch.path },
      isSpilled: (path) => path.endsWith(".spool"),
      found: async () =>
        await rowsOf(
          (await filesBelow(join(scratch.path, "out"))).filter((path) => /\/part-[^/]*\.parquet$/.test(path)),
        ),
    };
    await killAndFinish(scratch.path, target, spans);
  },
);

s3.describe("spilled rows of open spans", () => {
  test.runIf(torture).each(momentsOf([2]))(
    "a process that is killed with spilled rows of span %i, before S3, leaves a run that has each row once",
    async (spans) => {
      const bucket = await s3.server().createBucket();
      const endpoint = `http://127.0.0.1:${s3.server().port}`;
      const target: Target = {
        output: { parquet: { path: `s3://${bucket.name}/out`, endpoint, spool: { path: "spool" } } },
        env: s3Env(s3.server().port),
        isSpilled: (path) => path.endsWith(".spool"),
        async found() {
          const copies = join(scratch.path, "copies");
          await mkdir(copies, { recursive: true });
          const paths: string[] = [];
          for (const key of (await bucket.keys()).filter((one) => /\/part-[^/]*\.parquet$/.test(one))) {
            const path = join(copies, key.replaceAll("/", "-"));
            await writeFile(path, await bucket.get(key));
            paths.push(path);
          }
          return await rowsOf(paths);
        },
      };
      await killAndFinish(scratch.path, target, spans);
    },
  );
});

postgres.describe("spilled rows of open spans", () => {
  test.each(momentsOf([1]))(
    "a process that is killed with spilled rows of span %i, before Postgres, leaves a run that has each row once",
    async (spans) => {
      await using database = await postgres.server().createDatabase();
      const target: Target = {
        output: { postgres: { url: database.url, table: "scores.predictions", timeouts: { lock: 1 } } },
        env: { TMPDIR: scratch.path },
        isSpilled: (path) => path.endsWith(".spool"),
        async found() {
          const [table] = await database.query("SELECT to_regclass('scores.predictions') AS name");
          const found =
            table?.["name"] === null
              ? []
              : await database.query("SELECT id, length(body) AS bytes FROM scores.predictions");
          return found.map(({ id, bytes }) => ({ id: Number(id), bytes: Number(bytes) }));
        },
      };
      await killAndFinish(scratch.path, target, spans);
    },
  );
});
