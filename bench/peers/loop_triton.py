"""The loop of a data scientist against a model server: a thread for each shard, each with a client of its own.

usage: loop_triton.py http|grpc HOST:PORT BATCH_SIZE OUT_FOLDER SHARD...
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES = 32
SCHEMA = pa.schema([("id", pa.int64()), ("score", pa.float32())])
ROW_GROUP = 131_072

protocol, url, batch_size, out_folder, *shards = sys.argv[1:]
if protocol == "grpc":
    import tritonclient.grpc as triton

    BINARY = {}
else:
    import tritonclient.http as triton

    BINARY = {"binary_data": True}
os.makedirs(out_folder, exist_ok=True)


def score(shard):
    scored, rows = [], 0
    client = triton.InferenceServerClient(url)
    outputs = [triton.InferRequestedOutput("score", **BINARY)]
    with pq.ParquetWriter(os.path.join(out_folder, os.path.basename(shard)), SCHEMA) as writer:
        for batch in pq.ParquetFile(shard).iter_batches(batch_size=int(batch_size), use_threads=False):
            features = np.empty((batch.num_rows, FEATURES), "f4")
            for i in range(FEATURES):
                features[:, i] = batch.column(i + 1).to_numpy(zero_copy_only=False)
            tensor = triton.InferInput("input", list(features.shape), "FP32")
            tensor.set_data_from_numpy(features, **BINARY)
            scores = client.infer("m", [tensor], outputs=outputs).as_numpy("score")[:, 0]
            scored.append(pa.record_batch([batch.column(0), pa.array(scores)], schema=SCHEMA))
            rows += len(scores)
            if rows >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(scored))
                scored, rows = [], 0
        if scored:
            writer.write_table(pa.Table.from_batches(scored))
    client.close()


with ThreadPoolExecutor(len(shards)) as pool:
    list(pool.map(score, shards))
