"""Scores a table inside Ray, where its blocks are: python score.py JOB.yaml INPUT OUTPUT"""

import functools
import subprocess
import sys

import pyarrow as pa
import ray

FINAL = (64, 65, 66, 67)


def scored(table, command):
    """The predictions for the rows of a batch, which go through a pipe of their own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    done = subprocess.run(command, input=sink.getvalue(), capture_output=True)
    if done.returncode != 0:
        failure = RuntimeError if done.returncode in FINAL else ConnectionError
        said = done.stderr[-10_000:].decode(errors="replace")
        raise failure(f"infer-batch pipe ended with {done.returncode}: {said}")
    return pa.ipc.open_stream(done.stdout).read_all()


def main(job, source, target):
    command = ["infer-batch", "pipe", job]
    table = ray.data.read_parquet(source)
    predictions = table.map_batches(
        functools.partial(scored, command=command),
        batch_format="pyarrow",
        batch_size=100_000,
        num_cpus=1,  # as engine.threads in the job
        max_retries=3,
        retry_exceptions=[ConnectionError],  # a server or a store that is away: 75
    )
    predictions.write_parquet(target, mode="overwrite")


if __name__ == "__main__":
    main(*sys.argv[1:])
