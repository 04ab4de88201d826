"""Ray Data: read_parquet, map_batches with an actor for each thread, write_parquet.

usage: peer_ray.py MODEL BATCH_SIZE ACTORS OUT_FOLDER SHARD...
"""

import os
import secrets
import shutil
import sys
import tempfile

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # or it would keep one in the user's home

import numpy as np
import ray

FEATURES = [f"f{i}" for i in range(32)]

model, batch_size, actors, out_folder, *shards = sys.argv[1:]


class Model:
    def __init__(self):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1 if int(actors) > 1 else 0
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __call__(self, batch):
        features = np.empty((len(batch["id"]), len(FEATURES)), "f4")
        for i, name in enumerate(FEATURES):
            features[:, i] = batch[name]
        return {"id": batch["id"], "score": self.session.run(["score"], {"input": features})[0][:, 0]}


shutil.rmtree(out_folder, ignore_errors=True)
with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as scratch:  # the paths of its sockets must be short
    # One more slot than actors, or nothing would be left to read and to write.
    ray.init(num_cpus=int(actors) + 1, include_dashboard=False, logging_level="warning", _temp_dir=scratch)
    ray.data.DataContext.get_current().enable_progress_bars = False
    # The folder: Ray 2.60.0 lists several paths in threads that import the same module at once, and sometimes fails.
    table = ray.data.read_parquet(os.path.dirname(shards[0])).map_batches(
        Model, batch_size=int(batch_size), batch_format="numpy", compute=ray.data.ActorPoolStrategy(size=int(actors))
    )
    table.write_parquet(out_folder)
    ray.shutdown()
