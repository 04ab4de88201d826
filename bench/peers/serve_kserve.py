"""A model of KServe's model server: serve_kserve.py MODEL OUTPUT PORT. One process, since it has one core."""

import sys
from operator import itemgetter

import numpy as np
import onnxruntime
import uvicorn

path, output, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.argv = sys.argv[:1]  # kserve parses it when it is imported

from kserve import Model, ModelServer  # noqa: E402

features_of = itemgetter(*(f"f{index}" for index in range(32)))


class Onnx(Model):
    def __init__(self):
        super().__init__("m")
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        rows = payload["instances"]
        features = np.array([features_of(row) for row in rows], dtype=np.float32)
        (values,) = self.session.run([output], {self.input: features})
        scores = values.reshape(len(rows), -1)[:, -1].tolist()
        return {"predictions": [{"id": row["id"], "score": score} for row, score in zip(rows, scores)]}


def on_loopback():
    """KServe listens on all addresses, and has no setting for that."""
    init = uvicorn.Config.__init__
    uvicorn.Config.__init__ = lambda self, *args, **keys: init(self, *args, **{**keys, "host": "127.0.0.1"})


on_loopback()
server = ModelServer(http_port=port, workers=1, enable_grpc=False, enable_docs_url=False, enable_latency_logging=False)
server.start([Onnx()])
