"""Daft: read_parquet, `prompt` on the openai client, write_parquet.

usage: peer_daft_prompt.py JOB, which is JSON: url, table, out, state, system, labels, max_tokens, concurrency;
runner: native, or ray with a checkpoint in `state`; settings: tuned, or those that Daft has by default
"""

import json
import os
import secrets
import sys
import tempfile

job = json.loads(sys.argv[1])
tuned = job["settings"] == "tuned"
os.environ.update(DAFT_ANALYTICS_ENABLED="0", DO_NOT_TRACK="true", DAFT_PROGRESS_BAR="0", RAY_USAGE_STATS_ENABLED="0")
if tuned:
    os.environ["DAFT_MAX_ASYNC_UDF_INFLIGHT_TASKS"] = str(job["concurrency"])

import daft
from daft.ai.openai.provider import OpenAIProvider
from daft.functions import prompt
from pydantic import BaseModel, Field


class Answer(BaseModel):
    label: str = Field(json_schema_extra={"enum": job["labels"]})
    sure: float = Field(ge=0, le=1)


def run(**read):
    answer = prompt(
        daft.col("body"),
        return_format=Answer,
        system_message=job["system"],
        provider=OpenAIProvider(base_url=job["url"], api_key="none", **({"max_retries": 10} if tuned else {})),
        model="mock-1",
        use_chat_completions=True,
        max_tokens=job["max_tokens"],
        **({"on_error": "log"} if tuned else {}),
    )
    tickets = daft.read_parquet(job["table"] + "/*.parquet", **read)
    # Batches bound the requests in flight: otherwise all rows are asked at once, and an error of one leaves all without an
    # answer. Not with a checkpoint: it would take the batches for done before they are asked.
    tickets = tickets.into_batches(1) if tuned and not read else tickets
    answers = tickets.select("id", answer.alias("answer"))
    columns = [daft.col("answer")[name].alias(name) for name in ("label", "sure")]
    answers.select("id", *columns).write_parquet(job["out"], write_mode="append" if read else "overwrite")


if job["runner"] == "native":
    run()
else:
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as scratch:
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, logging_level="warning", _temp_dir=scratch)
        daft.set_runner_ray()
        # Without this, small files become one task, and a checkpoint keeps whole tasks.
        daft.set_execution_config(scan_tasks_min_size_bytes=0, scan_tasks_max_size_bytes=0)
        store = daft.CheckpointStore("file://" + os.path.join(job["state"], "checkpoint"))
        run(checkpoint=daft.CheckpointConfig(store=store, on="id"))
        ray.shutdown()
