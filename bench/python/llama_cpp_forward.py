"""
llama.cpp's side of bench/cpu/peers.ts, through its C interface and in its own default settings.
Usage: llama_cpp_forward.py <name>=<model.gguf> …   (a request names its model)
"""

import ctypes
import sys

import llama_cpp as llama
from clock import answer_requests, timed

PROMPT_MAX = 2048
SEQUENCE = 0


@llama.llama_log_callback
def silent(level, text, data):
    pass


def token_at(position):
    return 500 + position * 7919 % 40000


class Sequence:
    """One context with one sequence of `length` tokens that stays, and room for `room` more."""

    def __init__(self, model, length, room):
        params = llama.llama_context_default_params()
        params.n_ctx = length + room
        params.n_batch = max(room, 512)
        params.no_perf = True
        self.context = llama.llama_init_from_model(model, params)
        if not self.context:
            raise RuntimeError("llama.cpp made no context")
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(params.n_batch, 0, 1)
        self.length = length

    def threads(self, count):
        llama.llama_set_n_threads(self.context, count, count)

    def fill(self, start, count, every_row=False):
        """What the next forward computes; logits of the last row, or of each."""
        batch = self.batch
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = token_at(start + i)
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = SEQUENCE
            batch.logits[i] = every_row or i == count - 1

    def forward(self):
        if llama.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama.llama_synchronize(self.context)

    def forget(self, start):
        llama.llama_memory_seq_rm(self.memory, SEQUENCE, start, -1)

    def copy_to(self, other):
        size = llama.llama_state_seq_get_size(self.context, SEQUENCE)
        state = (ctypes.c_uint8 * size)()
        llama.llama_state_seq_get_data(self.context, state, size, SEQUENCE)
        if llama.llama_state_seq_set_data(other.context, state, size, SEQUENCE) == 0:
            raise RuntimeError("llama.cpp did not take its own state")


class Model:
    def __init__(self, path):
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.prompt = Sequence(self.model, 0, PROMPT_MAX)
        self.kept = {}

    def keep(self, length):
        self.kept[length] = Sequence(self.model, length, 32)
        return self.kept[length]


def prepare(models, contexts):
    """Keys and values of the last model are copied to the others: what they are makes no difference to the time."""
    *others, reader = models.values()
    for length in contexts:
        done = max(reader.kept, default=0)
        shorter = reader.kept.get(done)
        sequence = reader.keep(length)
        if shorter is not None:
            shorter.copy_to(sequence)
        sequence.threads(1)
        while done < length:
            count = min(512, length - done)
            sequence.fill(done, count)
            sequence.forward()
            done += count
        for other in others:
            sequence.copy_to(other.keep(length))
    return {}


def measure(model, kind, threads, runs, warm, rows=0, context=0, tokens=0):
    sequence = model.prompt if kind == "prefill" else model.kept[context]
    sequence.threads(threads)
    start = sequence.length

    def decode(first, count):
        for i in range(count):
            sequence.fill(first + i, 1)
            sequence.forward()

    def run():
        sequence.forget(start)
        sequence.forward()

    if kind == "decode":
        decode(start, warm)
        times = timed(runs, lambda: decode(start + warm, runs))
    else:
        sequence.fill(start, tokens if kind == "prefill" else rows, every_row=kind == "rows")
        for _ in range(warm):
            run()
        times = timed(runs, lambda: [run() for _ in range(runs)])
    sequence.forget(start)
    return times


def answer(request):
    if request["kind"] == "prepare":
        return prepare(MODELS, request["contexts"])
    return measure(MODELS[request.pop("model")], **request)


llama.llama_log_set(silent, None)
llama.llama_backend_init()
MODELS = {}
for argument in sys.argv[1:]:
    name, path = argument.split("=", 1)
    MODELS[name] = Model(path)

answer_requests(answer)
