"""
mlx-lm's side of bench/cpu/peers.ts: the converted folder in float32, on the CPU.
Usage: mlx_lm_forward.py <model folder>
"""

import sys
from pathlib import Path

import mlx.core as mx
from clock import answer_requests, timed
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
model, _ = load_model(Path(sys.argv[1]))
model.set_dtype(mx.float32)
kept = {}


def prepare(contexts):
    """What the keys and values are makes no difference to the time: reading the text would take minutes."""
    args = model.args
    for length in contexts:
        shape = (1, args.num_key_value_heads, length, args.head_dim)
        cache = make_prompt_cache(model)
        for layer in cache:
            mx.eval(layer.update_and_fetch(mx.random.normal(shape), mx.random.normal(shape)))
        kept[length] = cache
    return {}


def measure(threads, runs, warm, rows, context, kind):
    """`threads` is not asked: an evaluation has one, and the BLAS of the wheel as well."""
    cache = kept[context]
    ids = mx.array([[500 + (context + i) * 7919 % 40000 for i in range(rows)]])

    def run():
        mx.eval(mx.argmax(model(ids, cache=cache), axis=-1))
        trim_prompt_cache(cache, rows)

    for _ in range(warm):
        run()
    return timed(runs, lambda: [run() for _ in range(runs)])


def answer(request):
    if request["kind"] == "prepare":
        return prepare(request["contexts"])
    return measure(**request)


answer_requests(answer)
