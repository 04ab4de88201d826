import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { z } from "zod";
import { deployFolder } from "../support/deploy.js";
import { scratch } from "../support/job.js";
import { listen } from "../support/listener.js";
import { facetOf, parseEvent } from "../support/openlineage.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";
import { scheduledJob } from "../support/scheduled-job.js";

/** Of airflow_run.py. `found`: what infer-batch has printed last; `lineage_ids`: OpenLineage's name of each try. */
const result = z.object({
  dag: z.string(),
  day: z.int().nullable(),
  worker: z.int(),
  state: z.string(),
  tries: z.int(),
  found: z.object({ status: z.string(), rows_planned: z.int(), rows_scored: z.int() }).nullable(),
  lineage_ids: z.array(z.string()),
});

const airflow = pythonToolsOfTorture("airflow", [
  "apache-airflow==3.3.2",
  "apache-airflow-providers-openlineage==2.20.3",
]);

const parent = z.looseObject({
  run: z.object({ runId: z.string() }),
  job: z.object({ namespace: z.string(), name: z.string() }),
});

function nameOf(facet: unknown): string {
  const { run, job } = parent.parse(facet);
  return `${job.namespace} ${job.name} ${run.runId}`;
}

test.skipIf(airflow.missing !== undefined)(
  `Airflow carries out the DAGs, a person hears of a held run, and tasks are the parents of attempts in OpenLineage${airflow.skipped}`,
  async () => {
    await using lineage = await listen();
    await using hook = await listen();
    const { env } = await scheduledJob(scratch.path, `${hook.url}/held`, { openlineage: { url: lineage.url } });
    const dags = join(scratch.path, "dags"); // Python leaves what it has compiled beside a file
    await mkdir(dags);
    await copyFile(join(deployFolder, "airflow/daily_churn.py"), join(dags, "daily_churn.py"));
    await copyFile(fileURLToPath(new URL("airflow_any_time.py", import.meta.url)), join(dags, "any_time.py"));

    const child = spawn(join(airflow.bin, "python"), [fileURLToPath(new URL("airflow_run.py", import.meta.url))], {
      env: {
        ...env,
        AIRFLOW_HOME: join(scratch.path, "airflow"),
        AIRFLOW__CORE__DAGS_FOLDER: dags,
        AIRFLOW__CORE__LOAD_EXAMPLES: "False",
        INFER_BATCH_WORKERS: "2",
      },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 590_000, // it goes on trying where a task that should fail is retried
    });
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);

    expect(code, `${stdout}${stderr}`).toBe(0);
    const results = [...stdout.matchAll(/^RESULT (.*)$/gm)].map(([, json]) => result.parse(JSON.parse(json ?? "")));
    const alone = { dag: "daily_churn", worker: -1 };
    const mapped = { dag: "daily_churn_workers", day: 3, state: "success", tries: 1, found: { rows_planned: 178 } };
    expect(results, `${stdout}${stderr}`).toMatchObject([
      { ...alone, day: 1, state: "success", tries: 2, found: { status: "complete", rows_scored: 178 } },
      { ...alone, day: 1, state: "skipped", found: null },
      { ...alone, day: 2, state: "failed", tries: 1, found: null },
      { ...mapped, worker: 0 },
      { ...mapped, worker: 1 },
      { dag: "any_time", day: null, worker: -1, state: "success", found: { status: "already_complete" } },
      { ...alone, day: 4, state: "failed", tries: 1, found: null },
    ]);
    expect(hook.calls.map(({ path, body }) => [path, (JSON.parse(body) as { text: string }).text])).toEqual([
      ["/held", expect.stringContaining("infer-batch approve ")],
    ]);
    expect(results.slice(3).reduce((sum, { found }) => sum + (found?.rows_scored ?? 0), 0)).toBe(178);
    const parents = lineage.calls.map(({ body }) => facetOf(parseEvent(JSON.parse(body)).run.facets, "parent"));
    const expected = results.flatMap(({ dag, lineage_ids: ids }) => ids.map((id) => `default ${dag}.score ${id}`));
    expect([...new Set(parents.map(nameOf))].toSorted()).toEqual([...new Set(expected)].toSorted());
  },
  600_000,
);
