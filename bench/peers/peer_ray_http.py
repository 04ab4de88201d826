"""Ray Data: read_parquet, the HTTP request processor of ray.data.llm, write_parquet.

usage: peer_ray_http.py JOB, which is JSON: url, table, out, state, system, schema, max_tokens, concurrency;
settings: tuned, with a checkpoint in `state`, or those that Ray has by default
"""

import json
import os
import secrets
import sys
import tempfile

ACTORS, BATCH, BLOCKS = 2, 4, 16

job = json.loads(sys.argv[1])
tuned = job["settings"] == "tuned"
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # or it would keep one in the user's home
if tuned:
    # The requests of a batch are sent one after the other: this many batches of an actor are worked on at a time.
    os.environ["RAY_DATA_DEFAULT_ASYNC_BATCH_UDF_MAX_CONCURRENCY"] = str(job["concurrency"] // ACTORS)

import ray
from ray.data.checkpoint import CheckpointConfig
from ray.data.llm import HttpRequestProcessorConfig, build_processor

response_format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": job["schema"]}}


def request(row):
    messages = [{"role": "system", "content": job["system"]}, {"role": "user", "content": row["body"]}]
    asked = {"max_tokens": job["max_tokens"], "response_format": response_format}
    return {"payload": {"model": "mock-1", "messages": messages, **asked}}


def answer(row):
    content = json.loads(row["http_response"]["choices"][0]["message"]["content"])
    return {"id": row["id"], "label": content["label"], "sure": content["sure"], "error": ""}


def answer_or_error(row):
    """What the server answers with status 400 or 500 arrives here like an answer, and so does one that is no JSON."""
    try:
        return answer(row)
    except (KeyError, TypeError, ValueError):
        return {"id": row["id"], "label": None, "sure": None, "error": str(row["http_response"])}


settings = {"batch_size": BATCH, "concurrency": (ACTORS, ACTORS), "max_retries": 10} if tuned else {}
with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as scratch:  # the paths of its sockets must be short
    # More slots than actors: a checkpoint's filter takes one, and without another nothing would be read or written.
    ray.init(num_cpus=ACTORS + 4, include_dashboard=False, logging_level="warning", _temp_dir=scratch)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if tuned:
        # The newer reader makes one block of small files, independent of the number of blocks; a checkpoint keeps whole blocks.
        context.use_datasource_v2 = False
        state = os.path.join(job["state"], "checkpoint")
        context.checkpoint_config = CheckpointConfig(id_column="id", checkpoint_path=state)
    processor = build_processor(
        HttpRequestProcessorConfig(url=job["url"] + "/chat/completions", **settings),
        preprocess=request,
        postprocess=answer_or_error if tuned else answer,
    )
    table = ray.data.read_parquet(job["table"], **({"override_num_blocks": BLOCKS} if tuned else {}))
    processor(table).write_parquet(job["out"], mode="append")
    ray.shutdown()
