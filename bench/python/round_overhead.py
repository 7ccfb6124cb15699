"""
One burst: greedy decoding on a golden pair by the Python mlx-dspark, drafter alone, at a fixed cap; times by round.
Usage: round_overhead.py <target folder> <drafter folder> <tokens> <cap>
"""

import sys

import mlx.core as mx
from clock import answer_bursts, timed

mx.set_default_device(mx.cpu)

from mlx_dspark.generate import speculative_generate
from mlx_dspark.load import load_drafter, load_target

FOLDER, DRAFTER, TOKENS, CAP = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
target, tokenizer = load_target(FOLDER, require_tap=True)
drafter, _ = load_drafter(DRAFTER, quantize=False)
prompt = [(7 * i + 3) % 200 for i in range(8)]


class Endless:
    """The tokenizer, without an end of text: both sides write as many tokens."""

    def __init__(self, inner):
        self._inner = inner
        self.eos_token_ids = set()
        self.eos_token_id = None

    def __getattr__(self, name):
        return getattr(self._inner, name)


def burst():
    found = {}

    def run():
        found["result"] = speculative_generate(
            target,
            Endless(tokenizer),
            drafter,
            prompt_ids=prompt,
            max_new_tokens=TOKENS,
            max_draft_tokens=CAP,
            lookup_drafts=False,
        )

    times = timed(1, run)
    result = found["result"]
    rounds = len(result.accept_lengths)
    # It goes on past the limit to the end of its last round.
    ids = [int(i) for i in result.token_ids][:TOKENS]
    return {**{key: value / rounds for key, value in times.items()}, "checksum": sum(i * t for i, t in enumerate(ids))}


answer_bursts(burst)
