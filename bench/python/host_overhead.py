"""
One burst: greedy decoding of a folder's model by mlx-lm's generate_step.
Usage: host_overhead.py <model folder> <prompt tokens> <steps>
"""

import sys
import time
from pathlib import Path

import mlx.core as mx
from clock import answer_bursts, timed
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

FOLDER, PROMPT_TOKENS, STEPS = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

mx.set_default_device(mx.cpu)
model, _ = load_model(FOLDER)
prompt = mx.array([(7 * i + 3) % 200 for i in range(PROMPT_TOKENS)])

inside_wall = 0
inside_thread = 0


def counted(call):
    """The call, with the time in it added to `inside_wall` and `inside_thread`."""

    def wrapper(*arguments):
        global inside_wall, inside_thread
        wall, thread = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return call(*arguments)
        finally:
            inside_thread += time.thread_time_ns() - thread
            inside_wall += time.perf_counter_ns() - wall

    return wrapper


PLAIN = (mx.async_eval, mx.eval, mx.array.item)
COUNTED = tuple(counted(call) for call in PLAIN)


def generate():
    """Times of STEPS steps; the first token, which the prompt gives, comes before."""
    global inside_wall, inside_thread
    steps = generate_step(prompt, model, max_tokens=STEPS + 1)
    ids = [next(steps)[0]]
    inside_wall = inside_thread = 0

    def rest():
        for token, _ in steps:
            ids.append(token)

    return timed(STEPS, rest), ids


def burst():
    times, ids = generate()
    mx.async_eval, mx.eval, mx.array.item = COUNTED
    try:
        split, _ = generate()
    finally:
        mx.async_eval, mx.eval, mx.array.item = PLAIN
    return {
        **times,
        "outside_wall_ns": split["wall_ns"] - inside_wall / STEPS,
        "outside_thread_ns": split["thread_ns"] - inside_thread / STEPS,
        "checksum": sum(i * token for i, token in enumerate(ids)),
    }


answer_bursts(burst)
