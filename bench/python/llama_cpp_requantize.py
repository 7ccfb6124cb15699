"""
llama.cpp's own quantizer: a model file again in Q4_0, the 4-bit format that it has its fastest kernels for.
Usage: llama_cpp_requantize.py <from.gguf> <to.gguf>
"""

import os
import sys

import llama_cpp as llama

source, result = sys.argv[1:]
params = llama.llama_model_quantize_default_params()
params.ftype = llama.LLAMA_FTYPE_MOSTLY_Q4_0
params.allow_requantize = True
# The table, which is the head too, stays in the source's format, as on our side.
params.token_embedding_type = params.output_tensor_type = llama.GGML_TYPE_Q8_0
partial = f"{result}.{os.getpid()}"
if llama.llama_model_quantize(source.encode(), partial.encode(), params) != 0:
    sys.exit("llama.cpp's quantizer failed")
os.rename(partial, result)
