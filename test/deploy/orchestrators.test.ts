import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { deployText } from "../support/deploy.js";
import { scratch } from "../support/job.js";
import { listen } from "../support/listener.js";
import { pythonToolsOfTorture } from "../support/python-tools.js";
import { scheduledJob } from "../support/scheduled-job.js";

const dagster = pythonToolsOfTorture("dagster", ["dagster==1.13.28"]);
const prefect = pythonToolsOfTorture("prefect", ["prefect==3.9.1"]);
const days = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"];

async function start(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<[number, string]> {
  const child = spawn(program, args, { cwd: scratch.path, env, stdio: ["ignore", "pipe", "pipe"], timeout: 590_000 });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return [Number(code), stdout + stderr];
}

async function writeRecipe(path: string, delay: string): Promise<void> {
  const recipe = deployText(path);
  expect(recipe).toContain(`${delay}=600`);
  await writeFile(join(scratch.path, "daily_churn.py"), recipe.replace(`${delay}=600`, `${delay}=0.1`));
}

test.skipIf(dagster.missing !== undefined)(
  `Dagster retries what is not ready, gives up what no retry helps, and a person hears of a held run${dagster.skipped}`,
  async () => {
    await using hook = await listen();
    const { env, codes } = await scheduledJob(scratch.path, `${hook.url}/held`);
    await writeRecipe("dagster/daily_churn.py", "delay");
    const home = { ...env, DAGSTER_HOME: scratch.path, DAGSTER_DISABLE_TELEMETRY: "1" };

    const ended: [number, string][] = [];
    for (const day of days) {
      const job = [
        "job",
        "execute",
        "-f",
        "daily_churn.py",
        "-j",
        "nightly",
        "--tags",
        `{"dagster/partition":"${day}"}`,
      ];
      ended.push(await start(join(dagster.bin, "dagster"), job, home));
    }
    const tick = `
import datetime, dagster, daily_churn
at = datetime.datetime(2026, 1, 31, 2, 10, tzinfo=datetime.timezone.utc)
tick = daily_churn.defs.get_schedule_def("every_night").evaluate_tick(
    dagster.build_schedule_context(scheduled_execution_time=at, repository_def=daily_churn.defs.get_repository_def()))
print([(request.run_key, request.partition_key) for request in tick.run_requests])`;
    const [, said] = await start(join(dagster.bin, "python"), ["-c", tick], home);

    expect(await codes(), ended.map(([, log]) => log).join("\n")).toEqual([75, 0, 65, 0, 67]);
    expect(ended.map(([code]) => code)).toEqual([0, 1, 0, 1]);
    expect(ended[3]?.[1]).toContain("exit code 67 of infer-batch");
    expect(hook.calls.map(({ path, body }) => [path, (JSON.parse(body) as { text: string }).text])).toEqual([
      ["/held", expect.stringContaining("infer-batch approve ")],
    ]);
    expect(said).toContain("[('2026-01-31', '2026-01-31')]");
  },
  600_000,
);

test.skipIf(prefect.missing !== undefined)(
  `Prefect retries what is not ready, gives up what no retry helps, and a person hears of a held run${prefect.skipped}`,
  async () => {
    await using hook = await listen();
    const { env, codes } = await scheduledJob(scratch.path, `${hook.url}/held`);
    await writeRecipe("prefect/daily_churn.py", "retry_delay_seconds");
    const flows = `
import sys, daily_churn
for day in sys.argv[1:]:
    state = daily_churn.daily_churn(day, return_state=True)
    print("RESULT", day, state.type.value, flush=True)
daily_churn.score = lambda ds: print("SCHEDULED", ds, flush=True)
daily_churn.daily_churn()`;

    const [code, said] = await start(join(prefect.bin, "python"), ["-c", flows, ...days], {
      ...env,
      PREFECT_HOME: join(scratch.path, "prefect"),
      PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: "200",
      PREFECT_SERVER_ANALYTICS_ENABLED: "false",
      DO_NOT_TRACK: "1",
    });

    expect(code, said).toBe(0);
    expect(await codes(), said).toEqual([75, 0, 65, 0, 67]);
    expect([...said.matchAll(/^RESULT (.*)$/gm)].map(([, result]) => result)).toEqual([
      "2026-01-01 COMPLETED",
      "2026-01-02 FAILED",
      "2026-01-03 COMPLETED",
      "2026-01-04 FAILED",
    ]);
    expect(said).toMatch(/SCHEDULED \d{4}-\d\d-\d\d$/m);
    expect(hook.calls.map(({ path, body }) => [path, (JSON.parse(body) as { text: string }).text])).toEqual([
      ["/held", expect.stringContaining("infer-batch approve ")],
    ]);
  },
  600_000,
);
