"""One burst: additions of two scalars in Python's mlx.core. Usage: op_overhead.py <operations per burst>"""

import sys

import mlx.core as mx
from clock import answer_bursts, timed

OPERATIONS = int(sys.argv[1])

mx.set_default_device(mx.cpu)
a = mx.array(1.0)
b = mx.array(2.0)


def add_function():
    for _ in range(OPERATIONS):
        mx.add(a, b)


def add_operator():
    for _ in range(OPERATIONS):
        a + b


def burst():
    """The operator is the faster of Python's two ways, and the one that programs use."""
    named = timed(OPERATIONS, add_function)
    return {**timed(OPERATIONS, add_operator), **{f"function_{key}": value for key, value in named.items()}}


answer_bursts(burst)
