"""The plain loop for a model with an input a column: (id, label, probability of the first class) goes to one file.

usage: loop_columns.py MODEL BATCH_SIZE OUT_FILE SHARD...
"""

import sys

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

DTYPES = {"tensor(string)": object, "tensor(float)": np.float32, "tensor(int64)": np.int64}
SCHEMA = pa.schema([("id", pa.int64()), ("label", pa.string()), ("probability", pa.float32())])
ROW_GROUP = 131_072  # written together: a row group for each small batch would be slow to write and to read

model, batch_size, out_file, *shards = sys.argv[1:]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
inputs = {value.name: DTYPES[value.type] for value in session.get_inputs()}


def batches():
    for shard in shards:
        yield from pq.ParquetFile(shard).iter_batches(batch_size=int(batch_size), columns=["id", *inputs])


def feed(column, dtype):
    return column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)[:, None]


with pq.ParquetWriter(out_file, SCHEMA) as writer:
    scored, rows = [], 0
    for batch in batches():
        feeds = {name: feed(batch.column(name), dtype) for name, dtype in inputs.items()}
        labels, probabilities = session.run(["label", "probabilities"], feeds)
        columns = [batch.column("id"), pa.array(labels, pa.string()), pa.array(probabilities[:, 0])]
        scored.append(pa.record_batch(columns, schema=SCHEMA))
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            writer.write_table(pa.Table.from_batches(scored))
            scored, rows = [], 0
    if scored:
        writer.write_table(pa.Table.from_batches(scored))
