"""Has Airflow carry out the DAGs of deploy/airflow, all in this process. Prints a line of JSON for each task."""

import json
import os
import sys
from datetime import datetime, timedelta, timezone

from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.db import initdb

initdb()
bag = DagBag(conf.get("core", "dags_folder"))
if bag.import_errors:
    sys.exit(str(bag.import_errors))


def lineage_ids(run, task):
    """The ids that Airflow's OpenLineage provider gives the tries of a task."""
    return [
        OpenLineageAdapter.build_task_instance_run_id(
            dag_id=run.dag_id,
            task_id=task.task_id,
            try_number=number,
            logical_date=run.logical_date or run.run_after,
            map_index=task.map_index,
        )
        for number in range(1, task.try_number + 1)
    ]


def carry_out(dag_id, day):
    date = None if day is None else datetime(2026, 1, day, tzinfo=timezone.utc)
    run = bag.dags[dag_id].test(logical_date=date)
    for task in sorted(run.get_task_instances(), key=lambda task: task.map_index):
        found = task.xcom_pull(task_ids=task.task_id, map_indexes=task.map_index)
        print("RESULT", json.dumps({
            "dag": dag_id,
            "day": day,
            "worker": task.map_index,
            "state": task.state,
            "tries": task.try_number,
            "found": found,
            "lineage_ids": lineage_ids(run, task),
        }))


score = bag.dags["daily_churn"].get_task("score")
score.retry_delay = timedelta(0)
carry_out("daily_churn", 1)  # not ready, then complete
carry_out("daily_churn", 1)  # nothing new
carry_out("daily_churn", 2)  # a shard is no Parquet file
carry_out("daily_churn_workers", 3)
os.environ.pop("AIRFLOW_CTX_LOGICAL_DATE")  # of the last task: elsewhere each has a process of its own
carry_out("any_time", None)  # complete already
carry_out("daily_churn", 4)  # held
