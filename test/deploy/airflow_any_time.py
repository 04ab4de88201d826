"""A task that scores one day in a run without a logical date, as runs that an asset triggers are."""

import json
import os

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("any_time", schedule=None):
    BashOperator(
        task_id="score",
        bash_command='exec infer-batch run "$INFER_BATCH_SPEC" --param ds=2026-01-03 --json --no-progress',
        output_processor=json.loads,
    )
