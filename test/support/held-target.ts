import { readdir, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { scratchFolder, type SpecOverrides } from "./job.js";
import { heldNight, lastJson, type Nights, nightlyJob } from "./nights.js";
import type { PostgresServer } from "./postgres.js";
import type { S3Server } from "./s3.js";
import { useCredentials } from "./s3-output.js";
import { approvalSql } from "./pg-staged.js";

export const date = "2026-11-21";

/** A held night at some target. The night before is published. */
export interface HeldNight extends AsyncDisposable {
  readonly folder: string;
  readonly nights: Nights;
  readonly runId: string;
  /** A spec whose target refuses to plan a run; undefined: this one refuses none. */
  readonly refused?: SpecOverrides;
  /** Takes span 2 of the held run away. */
  loseSpan(): Promise<void>;
  /** Makes rows of the held run unreadable: cuts off the part of span 2, or drops the staging table. */
  damageRows(): Promise<void>;
  /** Stores that ann has approved the run, and publishes nothing. */
  approve(): Promise<void>;
  /** What `status` says of the run, or of the one in whose place it came. */
  status(): Promise<Record<string, unknown>>;
}

export type OpenHeldNight = () => Promise<HeldNight>;

const approval = { kind: "approved", by: "ann", at: "2026-11-21T06:00:00.000Z", reason: null, asBaseline: false };

function heldAt(
  folder: string,
  { nights, runId }: Pick<HeldNight, "nights" | "runId">,
): Pick<HeldNight, "folder" | "nights" | "runId" | "status"> {
  return {
    folder,
    nights,
    runId,
    status: async () => lastJson(await nights.night("status", date, "--json")),
  };
}

/** Name of a span's part while it is staged. */
const isLost = (name: string): boolean => /part-00002.*staged$/.test(name);

export async function heldOnDisk(): Promise<HeldNight> {
  const scratch = await scratchFolder();
  const nights = await nightlyJob(scratch.path);
  const runId = await heldNight(nights);
  const control = join(nights.folder(date), "_infer-batch", runId);
  const partToLose = async (): Promise<string> =>
    join(control, (await readdir(control, { recursive: true })).find(isLost) ?? "none");
  return {
    ...heldAt(scratch.path, { nights, runId }),
    async loseSpan() {
      await rm(await partToLose());
    },
    async damageRows() {
      await truncate(await partToLose(), 100);
    },
    approve: () => writeFile(join(control, "decision.json"), `${JSON.stringify(approval)}\n`),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

export async function heldInS3(server: S3Server): Promise<HeldNight> {
  useCredentials();
  const scratch = await scratchFolder();
  const bucket = await server.createBucket();
  const parquet = {
    path: `s3://${bucket.name}/lake/dt=\${ds}`,
    endpoint: `http://127.0.0.1:${server.port}`,
    spool: { path: "spool" },
  };
  const nights = await nightlyJob(scratch.path, { output: { parquet } });
  const runId = await heldNight(nights);
  const keyToLose = async (): Promise<string> => {
    const key = (await bucket.keys()).find(isLost) ?? "none";
    expect(key).toContain(runId);
    return key;
  };
  return {
    ...heldAt(scratch.path, { nights, runId }),
    async loseSpan() {
      await bucket.remove(await keyToLose());
    },
    async damageRows() {
      await bucket.put(await keyToLose(), "cut off");
    },
    approve: () => bucket.put(`lake/dt=${date}/_infer-batch/${runId}/decision.json`, `${JSON.stringify(approval)}\n`),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

export async function heldInTable(
  server: PostgresServer,
  mode: "append" | "upsert" | "replace" = "append",
): Promise<HeldNight> {
  const scratch = await scratchFolder();
  const database = await server.createDatabase();
  const key = mode === "append" ? [] : ["id"];
  const table = { url: database.url, table: "scores.predictions", mode, key, timeouts: { lock: 1 } };
  const nights = await nightlyJob(scratch.path, { output: { parquet: undefined, postgres: table } });
  const runId = await heldNight(nights);
  return {
    ...heldAt(scratch.path, { nights, runId }),
    refused: { output: { parquet: undefined, postgres: table, lineage: true } }, // with columns that the table lacks
    async loseSpan() {
      await database.query(`DELETE FROM infer_batch.spans WHERE span = 2 AND run_id = '${runId}'`);
    },
    async damageRows() {
      const [staging] = await database.query(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE tablename ~ '^staging_|__staging_'",
      );
      await database.query(`DROP TABLE ${String(staging?.["name"])}`);
    },
    async approve() {
      await database.query(approvalSql(runId));
    },
    async [Symbol.asyncDispose]() {
      await database[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}
