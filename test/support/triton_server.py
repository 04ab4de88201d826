"""A real Triton Inference Server with an ONNX file as its model `m`: triton_server.py MODEL SIGNATURE PORTS."""

import json
import sys

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

kinds = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "BOOL": np.bool_, "BYTES": bytes}
path, signature, ports = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(path, options)
names = [one["name"] for one in signature["outputs"]]


def decoded(values):
    return np.vectorize(lambda text: text.decode(), otypes=[object])(values) if values.dtype == object else values


def encoded(values):
    """Triton's tensors have a dimension beside that of the batch."""
    if values.dtype == object:
        values = np.vectorize(lambda text: text.encode(), otypes=[object])(values)
    return values.reshape(len(values), -1)


@batch
def infer(**inputs):
    outputs = session.run(names, {name: decoded(values) for name, values in inputs.items()})
    return {name: encoded(values) for name, values in zip(names, outputs)}


def tensors(described):
    return [Tensor(name=one["name"], dtype=kinds[one["datatype"]], shape=tuple(one["shape"][1:]) or (1,)) for one in described]


addresses = {f"{kind}_address": "127.0.0.1" for kind in ("http", "grpc", "metrics")}
config = TritonConfig(**ports, **addresses, log_verbose=0, exit_timeout_secs=5)
with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
    triton.bind(
        model_name="m",
        infer_func=infer,
        inputs=tensors(signature["inputs"]),
        outputs=tensors(signature["outputs"]),
        config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=1000)),
    )
    triton.serve()
