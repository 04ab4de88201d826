"""The plain loop: each batch is read, stacked and scored in turn; (id, score) goes to one Parquet file.

usage: loop_parquet.py MODEL BATCH_SIZE OUT_FILE SHARD...
"""

import sys

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([("id", pa.int64()), ("score", pa.float32())])
ROW_GROUP = 131_072  # written together: a row group for each small batch would be slow to write and to read

model, batch_size, out_file, *shards = sys.argv[1:]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
output = session.get_outputs()[-1].name  # a classifier's probabilities come after its label
names = [f"f{i}" for i in range(session.get_inputs()[0].shape[1])]


def batches():
    for shard in shards:
        yield from pq.ParquetFile(shard).iter_batches(batch_size=int(batch_size))


with pq.ParquetWriter(out_file, SCHEMA) as writer:
    scored, rows = [], 0
    for batch in batches():
        features = np.empty((batch.num_rows, len(names)), "f4")
        for i, name in enumerate(names):
            features[:, i] = batch.column(name).to_numpy(zero_copy_only=False)  # NULL: NaN
        scores = session.run([output], {"input": features})[0][:, -1]
        scored.append(pa.record_batch([batch.column("id"), pa.array(scores)], schema=SCHEMA))
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            writer.write_table(pa.Table.from_batches(scored))
            scored, rows = [], 0
    if scored:
        writer.write_table(pa.Table.from_batches(scored))
