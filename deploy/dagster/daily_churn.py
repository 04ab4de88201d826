"""Scores a day's features every night: a partition of an asset is a run. Dagster >= 1.9.

`infer-batch` and the spec are where steps run; what the spec needs of the environment comes from there too.
"""

import json
import os
import subprocess

import dagster as dg

SPEC = os.environ.get("INFER_BATCH_SPEC", "/opt/jobs/daily-churn.yaml")
# No retry helps: 64 usage or permission, 65 bad data, 66 not what was planned, 67 a person decides.
FINAL = (64, 65, 66, 67)


@dg.asset(
    # `end_offset`: the partition of a day can be scored on that day.
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-01-01", end_offset=1),
    # 75: input not ready, database away; 130, 143, 137: stopped, or out of memory. Four hours of tries.
    retry_policy=dg.RetryPolicy(max_retries=24, delay=600),
)
def daily_churn(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    command = ["infer-batch", "run", SPEC, "--param", f"ds={context.partition_key}", "--json", "--no-progress"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # stderr is the log of the step
    result = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    if done.returncode != 0:
        # What was found, and of a held run (67) the commands that decide, are among the metadata.
        raise dg.Failure(
            f"exit code {done.returncode} of infer-batch",
            metadata=result,
            allow_retries=done.returncode not in FINAL,
        )
    return dg.MaterializeResult(metadata=result)


nightly = dg.define_asset_job("nightly", selection=[daily_churn])


@dg.schedule(job=nightly, cron_schedule="10 2 * * *", execution_timezone="UTC")
def every_night(context: dg.ScheduleEvaluationContext):
    day = f"{context.scheduled_execution_time:%Y-%m-%d}"
    return dg.RunRequest(run_key=day, partition_key=day)


defs = dg.Definitions(assets=[daily_churn], jobs=[nightly], schedules=[every_night])
