"""Makes the models that `bench/tune.mjs` scores: python tune_models.py FOLDER. Input [N,32] float32, as of table `mlp`."""

import sys
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import onnxmltools
from onnx import TensorProto, helper, numpy_helper
from onnxmltools.convert.common.data_types import FloatTensorType

FEATURES = 32
random = np.random.default_rng(7)


def network(widths: list[int]) -> onnx.ModelProto:
    """Dense layers with ReLU between them; the score is a sigmoid."""
    nodes, weights, value = [], [], "input"
    for layer, (rows, columns) in enumerate(zip(widths, widths[1:])):
        scale = 0.5 / np.sqrt(rows)
        matrix = (random.standard_normal((rows, columns)) * scale).astype(np.float32)
        bias = (random.standard_normal(columns) * 0.1).astype(np.float32)
        weights += [numpy_helper.from_array(matrix, f"w{layer}"), numpy_helper.from_array(bias, f"b{layer}")]
        last = layer == len(widths) - 2
        result = "score" if last else f"a{layer}"
        nodes.append(helper.make_node("Gemm", [value, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        nodes.append(helper.make_node("Sigmoid" if last else "Relu", [f"g{layer}"], [result]))
        value = result
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", FEATURES])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 1])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def forest() -> onnx.ModelProto:
    """200 boosted trees of 31 leaves."""
    features = random.uniform(-5, 5, (20_000, FEATURES)).astype(np.float32)
    drawn = features[:, 0] + features[:, 1] * features[:, 2] / 3 + 3 * np.sin(features[:, 3])
    labels = (drawn + random.standard_normal(len(features)) > 0).astype(np.int64)
    trees = lightgbm.LGBMClassifier(n_estimators=200, num_leaves=31, verbose=-1, n_jobs=1).fit(features, labels)
    return onnxmltools.convert_lightgbm(
        trees, initial_types=[("input", FloatTensorType([None, FEATURES]))], zipmap=False, target_opset=15
    )


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, model in {
    "linear": network([FEATURES, 1]),
    "mlp": network([FEATURES, 128, 64, 1]),
    "gbm": forest(),
    "big": network([FEATURES, 1024, 1024, 1]),
}.items():
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(folder / f"{name}.onnx"))
