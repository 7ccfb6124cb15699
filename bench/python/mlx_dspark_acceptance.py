"""Greedy decoding of given prompt ids by the Python mlx-dspark on the CPU, with the drafter alone at a fixed cap.

Usage: mlx_dspark_acceptance.py <target folder> <drafter folder> < task.json > one line of JSON per prompt
The task: {"cap": n or null, "bits": 0 or 4, "max_new_tokens": n, "prompts": [[ids]]}
"""

import json
import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_dspark.generate import speculative_generate
from mlx_dspark.load import load_drafter, load_target


def main():
    target_folder, drafter_folder = sys.argv[1:3]
    task = json.load(sys.stdin)
    target, tokenizer = load_target(target_folder, require_tap=True)
    bits = task["bits"]
    drafter, _ = load_drafter(drafter_folder, quantize=bits != 0, bits=bits or 4)
    for ids in task["prompts"]:
        result = speculative_generate(
            target,
            tokenizer,
            drafter,
            prompt_ids=ids,
            max_new_tokens=task["max_new_tokens"],
            max_draft_tokens=task["cap"],
            lookup_drafts=False,
        )
        answer = {"ids": [int(i) for i in result.token_ids], "accept_lengths": result.accept_lengths, "seconds": result.seconds}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
