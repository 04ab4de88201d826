"""A model behind a real Ray Serve, which reads and answers JSON as its deployment's code does.

usage: ray_serve.py MODEL.onnx PORT
"""

import signal
import sys

import numpy as np
import ray
from ray import serve

FILE, PORT = sys.argv[1], int(sys.argv[2])


@serve.deployment(num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 0.1})
class Model:
    def __init__(self, file):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(file, options)
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.outputs = [one.name for one in self.session.get_outputs()]

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.01)
    async def predict(self, requests):
        together = {name: np.concatenate([one[name] for one in requests]) for name in self.inputs}
        answers = self.session.run(self.outputs, together)
        ends = np.cumsum([len(one[self.inputs[0]]) for one in requests])[:-1]
        return list(zip(*(np.split(answer, ends) for answer in answers)))

    async def __call__(self, request):
        if request.method == "GET":
            return {"ready": True}
        rows = (await request.json())["instances"]
        name = self.inputs[0]
        answers = await self.predict({name: np.asarray(rows, np.float32)})
        named = dict(zip(self.outputs, answers))
        return {"predictions": [{key: value[row].tolist() for key, value in named.items()} for row in range(len(rows))]}


def begin():
    """Ray gives up after 30 s, which a busy machine may take."""
    for left in reversed(range(5)):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=100 * 2**20,
                _node_ip_address="127.0.0.1",
                log_to_driver=False,
            )
            return
        except Exception:
            if left == 0:
                raise
            ray.shutdown()


begin()
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Model.bind(FILE), name="m", route_prefix="/m")
signal.pause()
