"""The plain loop over texts: each batch is tokenized, padded to its longest text and scored in turn.

With --sort the rows of the whole input are sorted by the number of their tokens first, so that a batch has little padding.

usage: loop_texts.py [--sort] MODEL TOKENIZER MAX BATCH_SIZE OUT_FILE SHARD...
"""

import sys

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

by_length = sys.argv[1] == "--sort"
model, tokenizer_file, most, batch_size, out_file, *shards = sys.argv[2 if by_length else 1 :]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
inputs = {one.name for one in session.get_inputs()}
tokenizer = Tokenizer.from_file(tokenizer_file)
tokenizer.enable_truncation(int(most))
tokenizer.no_padding()


def embed(encodings):
    width = max(len(one.ids) for one in encodings)
    feeds = {name: np.zeros((len(encodings), width), "i8") for name in ("input_ids", "attention_mask", "token_type_ids")}
    for row, one in enumerate(encodings):
        feeds["input_ids"][row, : len(one.ids)] = one.ids
        feeds["attention_mask"][row, : len(one.ids)] = 1
        feeds["token_type_ids"][row, : len(one.ids)] = one.type_ids
    return session.run(["embedding"], {name: value for name, value in feeds.items() if name in inputs})[0]


size = int(batch_size)
table = pa.concat_tables(pq.read_table(shard, columns=["id", "body"]) for shard in shards)
bodies = table["body"].to_pylist()
if by_length:
    encoded = tokenizer.encode_batch(bodies)
    order = np.argsort([len(one.ids) for one in encoded], kind="stable")
    scored = [embed([encoded[row] for row in order[start : start + size]]) for start in range(0, len(bodies), size)]
    embeddings = np.empty((len(bodies), scored[0].shape[1]), "f4")
    embeddings[order] = np.concatenate(scored)
else:
    starts = range(0, len(bodies), size)
    embeddings = np.concatenate([embed(tokenizer.encode_batch(bodies[start : start + size])) for start in starts])
lists = pa.ListArray.from_arrays(
    np.arange(0, embeddings.size + 1, embeddings.shape[1], dtype="i4"), pa.array(embeddings.ravel())
)
pq.write_table(pa.table({"id": table["id"], "embedding": lists}), out_file)
