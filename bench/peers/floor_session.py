"""A floor: session.run alone, over batches that are in memory, by the fastest batch size and layout of threads.

Prints the seconds that this many rows would take, and by what.

usage: floor_session.py MODEL ROWS THREADS
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort

BATCH_SIZES = (256, 1024, 4096, 16_384)
TRY_S, MEASURE_S = 0.25, 1.5

model, rows, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def opened(intra_op):
    options = ort.SessionOptions()
    options.intra_op_num_threads = intra_op
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def rate(session, callers, batch_size, seconds):
    """Rows a second, by so many threads that call at the same time."""
    output = session.get_outputs()[-1].name
    width = session.get_inputs()[0].shape[1]
    batches = [np.random.default_rng(i).uniform(-5, 5, (batch_size, width)).astype("f4") for i in range(callers)]

    def call(batch):
        session.run([output], {"input": batch})
        start, calls = time.perf_counter(), 0
        while (taken := time.perf_counter() - start) < seconds:
            session.run([output], {"input": batch})
            calls += 1
        return calls * batch_size / taken

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(call, batches))


layouts = [(opened(threads), 1, f"{threads} threads inside")]
if threads > 1:
    layouts.append((opened(1), threads, f"{threads} callers, one thread inside"))
tried = [
    (rate(session, callers, batch_size, TRY_S), session, callers, batch_size, name)
    for session, callers, name in layouts
    for batch_size in BATCH_SIZES
]
_, session, callers, batch_size, name = max(tried, key=lambda one: one[0])
best = rate(session, callers, batch_size, MEASURE_S)
print(json.dumps({"seconds": rows / best, "by": f"batch {batch_size}, {name}"}))
