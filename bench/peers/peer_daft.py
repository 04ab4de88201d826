"""Daft: read_parquet, a class UDF by batches with an instance for each thread, write_parquet.

usage: peer_daft.py MODEL BATCH_SIZE THREADS OUT_FOLDER SHARD...
"""

import os
import shutil
import sys

os.environ.update(DAFT_ANALYTICS_ENABLED="0", DO_NOT_TRACK="true", DAFT_PROGRESS_BAR="0")

import daft
import numpy as np
from daft import DataType, col

FEATURES = [f"f{i}" for i in range(32)]

model, batch_size, threads, out_folder, *shards = sys.argv[1:]


@daft.cls(max_concurrency=int(threads))
class Model:
    def __init__(self):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @daft.method.batch(return_dtype=DataType.float32(), batch_size=int(batch_size))
    def score(self, *columns):
        features = np.empty((len(columns[0]), len(FEATURES)), "f4")
        for i, column in enumerate(columns):
            features[:, i] = column.to_arrow().to_numpy(zero_copy_only=False)
        return self.session.run(["score"], {"input": features})[0][:, 0]


shutil.rmtree(out_folder, ignore_errors=True)
table = daft.read_parquet(shards)
table.select(col("id"), Model().score(*map(col, FEATURES)).alias("score")).write_parquet(out_folder)
