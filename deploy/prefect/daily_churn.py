"""Scores a day's features every night. Prefect >= 3.

`infer-batch` and the spec are where flows run; what the spec needs of the environment comes from there too.
"""

import json
import os
import subprocess

from prefect import flow, task
from prefect.runtime import flow_run

SPEC = os.environ.get("INFER_BATCH_SPEC", "/opt/jobs/daily-churn.yaml")


class GivenUp(Exception):
    """No retry helps: 64 usage or permission, 65 bad data, 66 not what was planned, 67 a person decides."""


def may_help(_task, _run, state):
    return not isinstance(state.result(raise_on_failure=False), GivenUp)


# 75: input not ready, database away; 130, 143, 137: stopped, or out of memory. Four hours of tries.
@task(retries=24, retry_delay_seconds=600, retry_condition_fn=may_help)
def score(ds):
    command = ["infer-batch", "run", SPEC, "--param", f"ds={ds}", "--json", "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stderr)  # the log; of a held run (67) also the commands that decide
    if done.returncode != 0:
        failure = GivenUp if done.returncode in (64, 65, 66, 67) else RuntimeError
        raise failure(f"exit code {done.returncode} of infer-batch")
    return json.loads(done.stdout.splitlines()[-1])


@flow(log_prints=True)
def daily_churn(ds: str | None = None):
    """The day is that for which the flow is scheduled, also in a retry after midnight; or `ds`."""
    return score(ds or f"{flow_run.scheduled_start_time:%Y-%m-%d}")


if __name__ == "__main__":
    daily_churn.serve(name="nightly", cron="10 2 * * *")
