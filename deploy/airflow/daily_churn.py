"""Two ways to score a day's features: by one task, or by several that share the run. Airflow >= 3.0.

`infer-batch` and the spec are where tasks run; what the spec needs of the environment comes from there too.
"""

import json
import os
import re
from datetime import datetime, timedelta

from airflow.exceptions import AirflowException
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

SPEC = os.environ.get("INFER_BATCH_SPEC", "/opt/jobs/daily-churn.yaml")
WORKERS = int(os.environ.get("INFER_BATCH_WORKERS", "4"))


class InferBatch(BashOperator):
    """Gives up at once where no retry helps: 64 usage or permission, 65 bad data, 66 not what was planned, 67 a
    person decides."""

    def execute(self, context):
        try:
            return super().execute(context)
        except AirflowException as error:
            if re.search(r"exit code (64|65|66|67)\.", str(error)):
                raise AirflowFailException(str(error)) from error
            raise


settings = {
    "schedule": "10 2 * * *",
    "start_date": datetime(2026, 1, 1),
    "catchup": False,
    "max_active_runs": 1,
    # 75: input not ready, database away; 130, 143, 137: stopped, or out of memory.
    "default_args": {
        "retries": 12,
        "retry_delay": timedelta(minutes=1),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=30),
        "execution_timeout": timedelta(hours=6),
    },
}

# `exec`: the signal that ends a task reaches infer-batch itself. The last line is the run's summary: the task's XCom.

with DAG("daily_churn", **settings):
    # 99: nothing new, the task is skipped. So is what follows it, also where a retry finds that the attempt before it
    # had finished the run and could not say so: give what follows trigger_rule="none_failed", or leave this out.
    InferBatch(
        task_id="score",
        bash_command='exec infer-batch run "$SPEC" --param "ds=$DS" --json --no-progress --skip-exit-code 99',
        skip_on_exit_code=99,
        env={"SPEC": SPEC, "DS": "{{ ds }}"},
        append_env=True,
        output_processor=json.loads,
    )

with DAG("daily_churn_workers", **settings):
    # No skip code here: a worker that starts late finds the rows that the others have committed, and those are new.
    InferBatch.partial(
        task_id="score",
        bash_command='exec infer-batch run "$SPEC" --param "ds=$DS" --json --no-progress --worker "$WORKER" --steal',
        append_env=True,
        output_processor=json.loads,
    ).expand(
        env=[
            # The index is part of the task's id in OpenLineage, and Airflow sets no variable for it.
            {"SPEC": SPEC, "DS": "{{ ds }}", "WORKER": f"{index}/{WORKERS}", "AIRFLOW_CTX_MAP_INDEX": str(index)}
            for index in range(WORKERS)
        ]
    )
