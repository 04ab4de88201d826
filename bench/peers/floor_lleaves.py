"""A floor: lleaves alone, which compiles LightGBM's trees by LLVM, over batches of float64 that are in memory.

Prints the seconds that this many rows would take, and by what. The model is trained again, as fixtures/making does: lleaves
reads LightGBM's own files. Its scores must be those of the ONNX model. Compiling takes a minute, once: CACHE keeps it.

usage: floor_lleaves.py MODEL ROWS THREADS CACHE
"""

import json
import sys
import time
from pathlib import Path

import lleaves
import numpy as np
import onnxruntime

sys.dont_write_bytecode = True  # beside the fixtures
sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures" / "making"))
from bench_lightgbm import bench_lightgbm  # noqa: E402

BATCH_SIZES = (1024, 4096, 16_384, 65_536)
TRY_S, MEASURE_S = 0.25, 1.5

model, rows, threads, cache = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
cache.mkdir(parents=True, exist_ok=True)
text = cache / "bench-lightgbm.txt"
if not text.exists():
    bench_lightgbm().booster_.save_model(str(text))
trees = lleaves.Model(model_file=str(text))
trees.compile(cache=str(cache / "bench-lightgbm.lleaves"))

sample = np.random.default_rng(0).uniform(-5, 5, (4096, 32)).astype("f4")
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
expected = session.run(["probabilities"], {"input": sample})[0][:, 1]
if not np.allclose(trees.predict(sample.astype("f8")), expected, atol=1e-5):
    sys.exit(f"{text} is not the model of {model}: another version of LightGBM trains other trees")


def rate(batch_size, seconds):
    """Rows a second."""
    batch = np.random.default_rng(1).uniform(-5, 5, (batch_size, 32))
    trees.predict(batch, n_jobs=threads)
    start, calls = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < seconds:
        trees.predict(batch, n_jobs=threads)
        calls += 1
    return calls * batch_size / taken


batch_size = max(BATCH_SIZES, key=lambda size: rate(size, TRY_S))
print(json.dumps({"seconds": rows / rate(batch_size, MEASURE_S), "by": f"batch {batch_size}, {threads} threads"}))
