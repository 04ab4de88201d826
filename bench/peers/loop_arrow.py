"""The plain loop over Arrow files: each batch is mapped, stacked and scored in turn; (id, score) goes to one Parquet file.

A column `embedding` of fixed-size lists is the input as it lies there.

usage: loop_arrow.py MODEL BATCH_SIZE OUT_FILE SHARD...
"""

import sys

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

SCHEMA = pa.schema([("id", pa.int64()), ("score", pa.float32())])
ROW_GROUP = 131_072  # written together: a row group for each small batch would be slow to write and to read

model, batch_size, out_file, *shards = sys.argv[1:]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
names = [f"f{i}" for i in range(session.get_inputs()[0].shape[1])]


def batches():
    for shard in shards:
        reader = ipc.open_file(pa.memory_map(shard))
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            for start in range(0, batch.num_rows, int(batch_size)):
                yield batch.slice(start, int(batch_size))


def packed(batch):
    if "embedding" in batch.schema.names:
        return batch.column("embedding").flatten().to_numpy().reshape(batch.num_rows, len(names))
    features = np.empty((batch.num_rows, len(names)), "f4")
    for i, name in enumerate(names):
        features[:, i] = batch.column(name).to_numpy()
    return features


with pq.ParquetWriter(out_file, SCHEMA) as writer:
    scored, rows = [], 0
    for batch in batches():
        scores = session.run(["score"], {"input": packed(batch)})[0][:, 0]
        scored.append(pa.record_batch([batch.column("id"), pa.array(scores)], schema=SCHEMA))
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            writer.write_table(pa.Table.from_batches(scored))
            scored, rows = [], 0
    if scored:
        writer.write_table(pa.Table.from_batches(scored))
