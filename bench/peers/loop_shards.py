"""The strongest loop: a thread for each shard, one thread inside onnxruntime, a Parquet file for each shard.

usage: loop_shards.py MODEL BATCH_SIZE THREADS OUT_FOLDER SHARD...
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES = 32
SCHEMA = pa.schema([("id", pa.int64()), ("score", pa.float32())])
ROW_GROUP = 131_072  # written together: a row group for each small batch would be slow to write and to read

model, batch_size, threads, out_folder, *shards = sys.argv[1:]
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
output = session.get_outputs()[-1].name  # a classifier's probabilities come after its label
os.makedirs(out_folder, exist_ok=True)


def score(shard):
    scored, rows = [], 0
    with pq.ParquetWriter(os.path.join(out_folder, os.path.basename(shard)), SCHEMA) as writer:
        for batch in pq.ParquetFile(shard).iter_batches(batch_size=int(batch_size), use_threads=False):
            features = np.empty((batch.num_rows, FEATURES), "f4")
            for i in range(FEATURES):
                features[:, i] = batch.column(i + 1).to_numpy(zero_copy_only=False)  # NULL: NaN
            scores = session.run([output], {"input": features})[0][:, -1]
            scored.append(pa.record_batch([batch.column(0), pa.array(scores)], schema=SCHEMA))
            rows += len(scores)
            if rows >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(scored))
                scored, rows = [], 0
        if scored:
            writer.write_table(pa.Table.from_batches(scored))


with ThreadPoolExecutor(int(threads)) as pool:
    list(pool.map(score, shards))
