"""A real Triton whose model answers zeros: triton_zeros.py HTTP_PORT GRPC_PORT METRICS_PORT."""

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

FEATURES = 32
http, grpc, metrics = (int(port) for port in sys.argv[1:])


@batch
def infer(input):
    return {"score": np.zeros((len(input), 1), np.float32)}


addresses = {f"{kind}_address": "127.0.0.1" for kind in ("http", "grpc", "metrics")}
config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics, **addresses)
with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
    triton.bind(
        model_name="m",
        infer_func=infer,
        inputs=[Tensor(name="input", dtype=np.float32, shape=(FEATURES,))],
        outputs=[Tensor(name="score", dtype=np.float32, shape=(1,))],
        config=ModelConfig(max_batch_size=8192),
    )
    triton.serve()
