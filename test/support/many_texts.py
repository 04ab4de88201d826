"""Writes 10,000 real texts in about a hundred languages, and the ids that Python's tokenizers gives for them.

The texts are the translations that Django brings, and names of emoji with the emoji itself; some get control characters.
usage: many_texts.py FOLDER_OF_TOKENIZERS OUT.json NAME...
"""

import gettext
import json
import random
import sys
from pathlib import Path

import django
import emoji
from tokenizers import Tokenizer

folder, out, *names = sys.argv[1:]
texts = set()
for path in sorted(Path(django.__file__).parent.rglob("*.mo")):
    with open(path, "rb") as file:
        texts.update(text for text in gettext.GNUTranslations(file)._catalog.values() if isinstance(text, str))
for symbol, about in emoji.EMOJI_DATA.items():
    texts.update(f"{symbol} {name}" for language, name in about.items() if isinstance(name, str))
draw = random.Random(29)
chosen = ["", " ", "\n", "\t", "\u200d", "\ufeff", "\x00", "\x7f"]
chosen += draw.sample(sorted(texts - {""}), 10_000 - len(chosen))
control = ["\x00", "\x01", "\x08", "\x1b[31m", "\u200b", "\u202e", "\r\n", "\ufeff", "\U000e0001"]
for at in draw.sample(range(len(chosen)), 500):
    middle = len(chosen[at]) // 2
    chosen[at] = chosen[at][:middle] + draw.choice(control) + chosen[at][middle:]
ids = {}
for name in names:
    tokenizer = Tokenizer.from_file(str(Path(folder) / f"{name}.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(64)
    ids[name] = [one.ids for one in tokenizer.encode_batch(chosen)]
Path(out).write_text(json.dumps({"texts": chosen, "ids": ids}), "utf8")
