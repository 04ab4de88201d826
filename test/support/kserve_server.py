"""A real KServe model server with an ONNX file as its model `m`: kserve_server.py MODEL SIGNATURE HTTP_PORT GRPC_PORT."""

import json
import sys

import grpc.aio._server as grpc_server
import numpy as np
import onnxruntime
import uvicorn

path, signature, http_port, grpc_port = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
sys.argv = sys.argv[:1]  # kserve parses it when it is imported

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer  # noqa: E402
from kserve.errors import InvalidInput  # noqa: E402

kinds = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BYTES": object}


def on_loopback():
    """KServe listens on all addresses, and has no setting for that."""
    init, add_port = uvicorn.Config.__init__, grpc_server.Server.add_insecure_port
    uvicorn.Config.__init__ = lambda self, *args, **keys: init(self, *args, **{**keys, "host": "127.0.0.1"})
    grpc_server.Server.add_insecure_port = lambda self, address: add_port(self, address.replace("[::]", "127.0.0.1"))


class Onnx(Model):
    def __init__(self):
        super().__init__("m")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)
        self.kinds = {one["name"]: one["datatype"] for one in signature["inputs"]}
        self.ready = True

    async def get_input_types(self):
        return signature["inputs"]

    async def get_output_types(self):
        return signature["outputs"]

    def predict(self, payload, headers=None, response_headers=None):
        names = [one["name"] for one in signature["outputs"]]
        if not isinstance(payload, InferRequest):
            outputs = self.session.run(names, self.feeds_of_rows(payload["instances"]))
            rows = zip(*(values.tolist() for values in outputs))
            return {"predictions": [dict(zip(names, row)) for row in rows]}
        feeds = {one.name: self.tensor(one.name, one.as_numpy()) for one in payload.inputs}
        is_binary = bool(payload.use_binary_outputs)
        answers = []
        for name, values in zip(names, self.session.run(names, feeds)):
            described = next(one for one in signature["outputs"] if one["name"] == name)
            if values.dtype == object:
                values = np.vectorize(lambda text: text.encode(), otypes=[object])(values)
            answer = InferOutput(name=name, shape=list(values.shape), datatype=described["datatype"])
            answer.set_data_from_numpy(values, binary_data=is_binary)
            answers.append(answer)
        return InferResponse(
            response_id=payload.id,
            model_name=self.name,
            infer_outputs=answers,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    def feeds_of_rows(self, rows):
        if len(self.kinds) == 1:
            return {name: self.tensor(name, np.array(rows)) for name in self.kinds}
        return {name: self.tensor(name, np.array([[row[name]] for row in rows])) for name in self.kinds}

    def tensor(self, name, values):
        if self.kinds[name] != "BYTES":
            return values.astype(kinds[self.kinds[name]])
        text = np.vectorize(lambda one: one.decode() if isinstance(one, bytes) else str(one), otypes=[object])
        try:
            return text(values)
        except UnicodeDecodeError as error:
            raise InvalidInput(str(error)) from error


on_loopback()
ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1, enable_docs_url=False).start([Onnx()])
