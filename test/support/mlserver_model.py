"""MLServer's model of the tests: an ONNX file, named by the environment variable ONNX."""

import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse

kinds = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(double)": np.float64}


class Onnx(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["ONNX"], options)
        self.types = {one.name: one.type for one in self.session.get_inputs()}
        return True

    async def predict(self, request):
        feeds = {one.name: self.decode(one) for one in request.inputs}
        names = [one.name for one in request.outputs]
        outputs = zip(names, self.session.run(names, feeds))
        encoded = [
            StringCodec.encode_output(name, list(values)) if values.dtype == object else NumpyCodec.encode_output(name, values)
            for name, values in outputs
        ]
        return InferenceResponse(id=request.id, model_name=self.name, model_version=self.version, outputs=encoded)

    def decode(self, one):
        if one.datatype == "BYTES":
            return np.array(StringCodec.decode_input(one), dtype=object).reshape(one.shape)
        return NumpyCodec.decode_input(one).astype(kinds[self.types[one.name]])
