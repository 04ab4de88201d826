import { join } from "node:path";
import { expect, test } from "vitest";
import { openJob } from "#src/job/job-context.js";
import { runJob } from "#src/run/run.js";
import type { JobContext } from "#src/flow/context.js";
import { JobError } from "#src/base/errors.js";
import { alone } from "../../support/score.js";
import { writeRows } from "../../support/parquet.js";
import { promptJob } from "../../support/prompt-job.js";

const rows = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;
const [first, second] = ["2026-01-01", "2026-01-02"];

/** Carries out the second night with another memory, or another reader of stored rows. */
async function runWith(spec: string, others: (job: JobContext) => Partial<JobContext>): Promise<unknown> {
  await using job = await openJob(spec, { param: [`ds=${second}`] }, { attempt: alone });
  return await runJob({ ...job, ...others(job) });
}

test("a run of prompts whose earlier run does not fit in memory asks nothing; with more memory it asks only for new rows", async () => {
  await using job = await promptJob({
    params: { ds: "${today}" },
    select: rows(300),
    reuse: { key: ["id"] },
    output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
    server: { version: "m" },
  });
  expect(await job.run("--param", `ds=${first}`)).toMatchObject({ code: 0, report: { rows_scored: 300 } });
  await writeRows(join(job.folder, "texts.parquet"), rows(305));

  const small = runWith(job.spec, ({ memory }) => ({ memory: { ...memory, storedBytes: 5000 } }));
  await expect(small).rejects.toMatchObject({
    exitCode: 64,
    message: expect.stringMatching(/run \S+: \d+ rows of it do not fit in memory/),
    hint: expect.stringContaining("set engine.memory: 1MiB or more"),
  });
  const failing = runWith(job.spec, () => ({
    openStoredRows: () => Promise.reject(new JobError("DISK", "reading the rows of an earlier run: no space")),
  }));
  await expect(failing).rejects.toMatchObject({ exitCode: 75, code: "DISK" });
  expect(job.server.requests).toHaveLength(300);

  const ended = await job.run("--param", `ds=${second}`);

  expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_scored: 305, rows_reused: 300 } });
  expect(job.server.requests).toHaveLength(305);
});
