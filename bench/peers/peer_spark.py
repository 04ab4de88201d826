"""PySpark on this machine: read.parquet, predict_batch_udf over an array of the features, write.parquet.

usage: peer_spark.py MODEL BATCH_SIZE THREADS OUT_FOLDER SHARD...
"""

import os
import sys
import tempfile

import numpy as np

os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")

from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.functions import array, col
from pyspark.sql.types import FloatType

FEATURES = [f"f{i}" for i in range(32)]

model, batch_size, threads, out_folder, *shards = sys.argv[1:]


def load():
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # Spark starts a Python worker for each thread
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(["score"], {"input": np.ascontiguousarray(x, "f4")})[0][:, 0]


with tempfile.TemporaryDirectory() as scratch:
    spark = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(max(int(batch_size), 10_000)))
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", os.path.join(scratch, "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    score = predict_batch_udf(
        load, return_type=FloatType(), batch_size=int(batch_size), input_tensor_shapes=[[len(FEATURES)]]
    )
    table = spark.read.parquet(*shards).select("id", score(array(*map(col, FEATURES))).alias("score"))
    table.write.mode("overwrite").parquet(out_folder)
    spark.stop()
