import { join } from "node:path";
import { expect, test } from "vitest";
import { openStoredRows } from "#src/app/duckdb/open-stored-rows.js";
import { openJob } from "#src/app/job-context.js";
import { runJob } from "#src/run/run.js";
import { alone } from "../../support/score.js";
import { writeRows } from "../../support/parquet.js";
import { promptJob } from "../../support/prompt-job.js";

const rows = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;
const [first, second] = ["2026-01-01", "2026-01-02"];

/** Too little for a DuckDB that joins. */
const memoryBytes = 300_000;

/** Runs a job whose DuckDB that finds stored rows has hardly any memory. */
async function runShortOfMemory(spec: string, folder: string): Promise<unknown> {
  await using job = await openJob(spec, { param: [`ds=${second}`] }, { attempt: alone });
  const { writer } = job;
  const scarce = { folder, writer, isDead: () => false, threads: 1, memoryBytes };
  return await runJob({
    ...job,
    memory: { ...job.memory, storedBytes: 0 }, // stored rows are joined
    openStoredRows: (request) => openStoredRows(scarce, request),
  });
}

test("a run of prompts whose reuse runs out of memory ends with 75 and asks nothing; with more memory it asks only for new rows", async () => {
  await using job = await promptJob({
    params: { ds: "${today}" },
    select: rows(300),
    reuse: { key: ["id"] },
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    server: { version: "m" },
  });
  expect(await job.run("--param", `ds=${first}`)).toMatchObject({ code: 0, report: { rows_scored: 300 } });
  await writeRows(join(job.folder, "texts.parquet"), rows(305));

  await expect(runShortOfMemory(job.spec, job.folder)).rejects.toMatchObject({
    exitCode: 75,
    code: "MEMORY",
    message: expect.stringContaining("Out of Memory Error"),
    hint: expect.stringContaining("raise engine.memory"),
  });
  expect(job.server.requests).toHaveLength(300);

  const ended = await job.run("--param", `ds=${second}`);

  expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_scored: 305, rows_reused: 300 } });
  expect(job.server.requests).toHaveLength(305);
});
