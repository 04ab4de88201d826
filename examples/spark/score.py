"""Scores a table inside Spark, where its partitions are: spark-submit score.py JOB.yaml INPUT OUTPUT"""

import itertools
import subprocess
import sys
import tempfile

import pyarrow as pa
from pyspark.sql import SparkSession


class Pipe:
    """`infer-batch pipe` at work: for each record batch that goes in, one comes out."""

    def __init__(self, command, schema):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.writer = pa.ipc.new_stream(self.process.stdin, schema)
        self.reader = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def score(self, batch):
        try:
            self.writer.write_batch(batch)
            self.process.stdin.flush()
            self.reader = self.reader or pa.ipc.open_stream(self.process.stdout)
            return self.reader.read_next_batch()
        except (OSError, pa.ArrowInvalid, StopIteration) as error:
            raise self.failure() from error

    def finish(self):
        """All went in: waits for the word that all came out, and passes on what was said of rejected rows."""
        try:
            self.writer.close()
        except OSError as error:
            raise self.failure() from error
        self.process.stdin.close()
        self.process.stdout.read()
        if self.process.wait() != 0:
            raise self.failure()
        sys.stderr.write(tail(self.log))

    def failure(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has gone
        return RuntimeError(message(self.process.wait(), self.log))


def tail(log):
    log.seek(0)
    return log.read()[-10_000:].decode(errors="replace")


def message(code, log):
    return f"infer-batch pipe ended with {code}: {tail(log)}"


def scored(command, batches):
    """The predictions for the record batches of a partition."""
    first = next(batches, None)
    if first is not None:
        with Pipe(command, first.schema) as pipe:
            for batch in itertools.chain([first], batches):
                yield pipe.score(batch)
            pipe.finish()


def output_schema(spark, command, schema):
    """What comes out of a pipe that has no rows: its columns. A mistake in the job ends here, before any task."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(command, input=sink.getvalue(), stdout=subprocess.PIPE, stderr=log)
        if done.returncode != 0:
            sys.exit(message(done.returncode, log))
    return spark.createDataFrame(pa.ipc.open_stream(done.stdout).read_all()).schema


def main(job, source, target):
    spark = SparkSession.builder.appName("infer-batch").getOrCreate()
    command = ["infer-batch", "pipe", job]
    table = spark.read.parquet(source)
    columns = output_schema(spark, command, table.limit(0).toArrow().schema)
    predictions = table.mapInArrow(lambda batches: scored(command, batches), columns)
    predictions.write.mode("overwrite").parquet(target)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
