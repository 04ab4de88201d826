"""Writes a tiny random llama model as GGUF: 107 KB, tokens are bytes. Usage: tiny_gguf.py OUT.gguf CONTEXT"""

import sys

import gguf
import numpy as np

path, context = sys.argv[1], int(sys.argv[2])
vocabulary, embedding, feed_forward, heads = 259, 32, 64, 2
random = np.random.default_rng(0)


def weights(*shape):
    return random.normal(0, 0.3, shape).astype(np.float32)


def ones(size):
    return np.ones(size, np.float32)


writer = gguf.GGUFWriter(path, "llama")
writer.add_name("tiny-random")
writer.add_context_length(context)
writer.add_embedding_length(embedding)
writer.add_block_count(1)
writer.add_feed_forward_length(feed_forward)
writer.add_head_count(heads)
writer.add_head_count_kv(heads)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(embedding // heads)
writer.add_vocab_size(vocabulary)
writer.add_file_type(0)
writer.add_tokenizer_model("llama")
tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
writer.add_token_list([token.encode() for token in tokens])
writer.add_token_scores([0.0] * vocabulary)
kinds = gguf.TokenType
writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * 256)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_unk_token_id(0)
writer.add_add_bos_token(True)
writer.add_add_space_prefix(False)
writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")

embeddings, output = weights(vocabulary, embedding), weights(vocabulary, embedding)
attention, down = weights(embedding, embedding), weights(embedding, feed_forward)
# Dimension 0 is a constant, since no block writes to it. It pushes down each token that is not printable ASCII, so that
# answers are valid text.
embeddings[:, 0] = 2
attention[0] = 0
down[0] = 0
output[:, 0] = [0 if 3 + 32 <= token < 3 + 127 else -0.5 if token == 2 else -9 for token in range(vocabulary)]
tensors = {
    "token_embd.weight": embeddings,
    "output_norm.weight": ones(embedding),
    "output.weight": output,
    "blk.0.attn_norm.weight": ones(embedding),
    "blk.0.attn_q.weight": weights(embedding, embedding),
    "blk.0.attn_k.weight": weights(embedding, embedding),
    "blk.0.attn_v.weight": weights(embedding, embedding),
    "blk.0.attn_output.weight": attention,
    "blk.0.ffn_norm.weight": ones(embedding),
    "blk.0.ffn_gate.weight": weights(feed_forward, embedding),
    "blk.0.ffn_up.weight": weights(feed_forward, embedding),
    "blk.0.ffn_down.weight": down,
}
for name, tensor in tensors.items():
    writer.add_tensor(name, tensor)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
