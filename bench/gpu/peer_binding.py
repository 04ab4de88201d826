"""A plain loop over a Parquet folder with io binding: reads, scores on a device, writes one Parquet file.

Prints a line of JSON: the rows, and the seconds from the first read to the end of the file.

usage: peer_binding.py MODEL FOLDER COLUMNS OUTPUT PROVIDER BATCH_SIZE
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

model, folder, columns, output, provider, batch_size = sys.argv[1:6] + [int(sys.argv[6])]
names = columns.split(",")
provider_name = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider", "cpu": "CPUExecutionProvider"}[
    provider
]
device = "cpu" if provider == "cpu" else "cuda"
session = ort.InferenceSession(model, providers=[provider_name])
if session.get_providers()[0] != provider_name:
    sys.exit(f"onnxruntime has no {provider_name}")
name_in, name_out = session.get_inputs()[0].name, session.get_outputs()[0].name


def features(batch):
    if len(names) == 1:
        lists = batch.column(names[0])
        return lists.flatten().to_numpy().astype("f4", copy=False).reshape(len(lists), -1)
    return np.column_stack([batch.column(name).to_numpy() for name in names]).astype("f4", copy=False)


def score(matrix):
    binding = session.io_binding()
    binding.bind_ortvalue_input(name_in, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(matrix), device, 0))
    binding.bind_output(name_out, device)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0].numpy()[:, 0]


def batches():
    for path in sorted(Path(folder).glob("*.parquet")):
        yield from pq.ParquetFile(path).iter_batches(batch_size, columns=["id", *names])


first = next(batches())
score(features(first))  # the first call prepares the device
rows, start = 0, time.perf_counter()
schema = pa.schema([("id", pa.int64()), ("score", pa.float32())])
with pq.ParquetWriter(output, schema, compression="zstd") as writer:
    for batch in batches():
        writer.write_batch(pa.record_batch([batch.column("id"), pa.array(score(features(batch)))], schema=schema))
        rows += batch.num_rows
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - start}))
