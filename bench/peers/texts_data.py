"""Writes what bench/texts.mjs scores: texts.parquet, the same bytes each time, and encoder.onnx.

A text is one to four of the texts in fixtures/tokenizers, most often one. The encoder is a transformer of 4 layers of 256
with random weights, whose output is the mean of its tokens under the mask; a sentence-embedding model of this shape is
small, and a larger one would give tokenizing a smaller share.

usage: texts_data.py TEXTS_JSON FOLDER ROWS
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS = 1216, 256, 4, 4, 512

texts_json, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)


def write_texts():
    texts = [text for text in json.loads(Path(texts_json).read_text("utf8")) if len(text) > 20]
    draw = random.Random(29)
    bodies = [" ".join(draw.choices(texts, k=draw.choice((1, 1, 1, 1, 2, 2, 3, 4)))) for _ in range(rows)]
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "body": bodies})
    pq.write_table(table, folder / "texts.parquet", row_group_size=1000)


def write_encoder():
    weights, nodes, random_weights = [], [], np.random.default_rng(29)

    def constant(name, value):
        weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(name, *shape):
        return constant(name, (random_weights.standard_normal(shape) * 0.05).astype("f4"))

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def norm(x, name):
        scale = constant(f"{name}_scale", np.ones(HIDDEN, "f4"))
        return node("LayerNormalization", [x, scale, constant(f"{name}_bias", np.zeros(HIDDEN, "f4"))], name)

    def heads(x, name, perm):
        shaped = node("Reshape", [node("MatMul", [x, weight(f"w_{name}", HIDDEN, HIDDEN)], f"m_{name}"), "heads"], f"r_{name}")
        return node("Transpose", [shaped], name, perm=perm)

    constant("heads", np.array([0, 0, HEADS, HIDDEN // HEADS], "i8"))
    constant("joined", np.array([0, 0, HIDDEN], "i8"))
    constant("scale", np.float32((HIDDEN // HEADS) ** -0.5))
    embedded = node("Gather", [weight("tokens", VOCABULARY, HIDDEN), "input_ids"], "embedded")
    length = node("Gather", [node("Shape", ["input_ids"], "shape"), constant("second", np.int64(1))], "length")
    places = node("Range", [constant("zero", np.int64(0)), length, constant("step", np.int64(1))], "places")
    x = node("Add", [embedded, node("Gather", [weight("positions", POSITIONS, HIDDEN), places], "placed")], "x")
    node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    node("Sub", [constant("one", np.float32(1)), "mask"], "padding")
    node("Unsqueeze", [node("Mul", ["padding", constant("far", np.float32(-1e4))], "low"), constant("axes", np.array([1, 2]))], "bias")
    for layer in range(LAYERS):
        q, k, v = (heads(x, f"{name}{layer}", perm) for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))))
        scores = node("Add", [node("Mul", [node("MatMul", [q, k], f"qk{layer}"), "scale"], f"s{layer}"), "bias"], f"b{layer}")
        mixed = node("MatMul", [node("Softmax", [scores], f"a{layer}", axis=-1), v], f"av{layer}")
        rows_again = node("Reshape", [node("Transpose", [mixed], f"t{layer}", perm=(0, 2, 1, 3)), "joined"], f"j{layer}")
        projected = node("MatMul", [rows_again, weight(f"o{layer}", HIDDEN, HIDDEN)], f"p{layer}")
        y = norm(node("Add", [x, projected], f"y{layer}"), f"n{layer}")
        wide = node("Relu", [node("MatMul", [y, weight(f"f{layer}", HIDDEN, 4 * HIDDEN)], f"h{layer}")], f"g{layer}")
        narrow = node("MatMul", [wide, weight(f"d{layer}", 4 * HIDDEN, HIDDEN)], f"e{layer}")
        x = norm(node("Add", [y, narrow], f"z{layer}"), f"l{layer}")
    node("Unsqueeze", ["mask", constant("last", np.array([2]))], "column")
    first = constant("first", np.array([1]))
    node("ReduceSum", [node("Mul", [x, "column"], "kept"), first], "sum", keepdims=0)
    node("Div", ["sum", node("ReduceSum", ["column", first], "count", keepdims=0)], "embedding")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N", "S"]) for name in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", HIDDEN])]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "encoder.onnx")


write_texts()
write_encoder()
