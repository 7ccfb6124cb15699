"""The Python side of bench/support/contender.ts: one burst per line of standard input, answered in JSON."""

import json
import sys
import time


def timed(count, body):
    """Times of body(), in nanoseconds, divided by count."""
    wall, thread, process = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
    body()
    return {
        "wall_ns": (time.perf_counter_ns() - wall) / count,
        "thread_ns": (time.thread_time_ns() - thread) / count,
        "process_ns": (time.process_time_ns() - process) / count,
    }


def answer_requests(answer):
    """Serves until the input closes: each line is what to measure, in JSON."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer_bursts(burst):
    """Serves until the input closes, where there is one thing to measure."""
    for _ in sys.stdin:
        print(json.dumps(burst()), flush=True)
