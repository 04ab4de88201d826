"""The plain loop into Postgres: one COPY BINARY, whose frames numpy builds, in one transaction.

usage: loop_pg.py MODEL BATCH_SIZE URL SHARD...
"""

import sys

import numpy as np
import onnxruntime as ort
import psycopg
import pyarrow.parquet as pq

FEATURES = [f"f{i}" for i in range(32)]
ROW = np.dtype([("fields", ">i2"), ("l1", ">i4"), ("id", ">i8"), ("l2", ">i4"), ("score", ">f4")])

model, batch_size, url, *shards = sys.argv[1:]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
with psycopg.connect(url) as connection, connection.cursor() as cursor:
    with cursor.copy("COPY bench.scores (id, score) FROM STDIN (FORMAT binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for shard in shards:
            for batch in pq.ParquetFile(shard).iter_batches(batch_size=int(batch_size)):
                features = np.empty((batch.num_rows, len(FEATURES)), "f4")
                for i, name in enumerate(FEATURES):
                    features[:, i] = batch.column(name).to_numpy()
                rows = np.empty(batch.num_rows, ROW)
                rows["fields"], rows["l1"], rows["l2"] = 2, 8, 4
                rows["id"] = batch.column("id").to_numpy()
                rows["score"] = session.run(["score"], {"input": features})[0][:, 0]
                copy.write(rows.tobytes())
        copy.write(b"\xff\xff")
    connection.commit()
