"""Python's tritonclient alone: threads that send the same batch again and again.

usage: client_triton.py http|grpc HOST:PORT BATCH_SIZE REQUESTS THREADS
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

FEATURES = 32
protocol, url = sys.argv[1:3]
batch_size, requests, threads = (int(value) for value in sys.argv[3:])
if protocol == "grpc":
    import tritonclient.grpc as triton

    BINARY = {}
else:
    import tritonclient.http as triton

    BINARY = {"binary_data": True}
features = (np.arange(batch_size * FEATURES, dtype="f4") % 97 / 10).reshape(batch_size, FEATURES)


def send(count):
    client = triton.InferenceServerClient(url)
    outputs = [triton.InferRequestedOutput("score", **BINARY)]
    rows = 0
    for _ in range(count):
        tensor = triton.InferInput("input", list(features.shape), "FP32")
        tensor.set_data_from_numpy(features, **BINARY)
        rows += len(client.infer("m", [tensor], outputs=outputs).as_numpy("score"))
    client.close()
    return rows


with ThreadPoolExecutor(threads) as pool:
    print(sum(pool.map(send, [requests // threads] * threads)))
