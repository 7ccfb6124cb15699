"""Per-tensor facts of the golden GGUF files, decoded by the gguf package (0.19) and put into HF row order by hand."""
import json, sys, numpy as np, gguf
from pathlib import Path
d=Path(__file__).parent
TOP={"token_embd":"model.embed_tokens","output_norm":"model.norm","output":"lm_head"}
L={"attn_norm":"input_layernorm","ffn_norm":"post_attention_layernorm","attn_q":"self_attn.q_proj","attn_k":"self_attn.k_proj","attn_v":"self_attn.v_proj","attn_output":"self_attn.o_proj","attn_q_norm":"self_attn.q_norm","attn_k_norm":"self_attn.k_norm","ffn_gate":"mlp.gate_proj","ffn_up":"mlp.up_proj","ffn_down":"mlp.down_proj"}
for f in sorted(d.glob("*.gguf")):
    r=gguf.GGUFReader(str(f)); arch=r.fields["general.architecture"].contents()
    nh=r.fields[f"{arch}.attention.head_count"].contents(); nkv=r.fields[f"{arch}.attention.head_count_kv"].contents()
    out={}
    for t in r.tensors:
        if t.name=="rope_freqs.weight": continue
        shape=[int(x) for x in t.shape[::-1]]
        v=gguf.quants.dequantize(t.data,t.tensor_type).astype(np.float32).reshape(shape)
        p=t.name.split(".")
        if p[0]=="blk":
            name=f"model.layers.{p[1]}.{L[p[2]]}.{p[3]}"
            if arch=="llama" and p[2] in("attn_q","attn_k"):
                h=nh if p[2]=="attn_q" else nkv
                v=v.reshape(h,shape[0]//h//2,2,-1).swapaxes(1,2).reshape(shape)
        else: name=TOP[p[0]]+"."+p[1]
        x=v.reshape(-1).astype(np.float64); w=(np.arange(x.size)%97)+1.0
        out[name]=dict(type=t.tensor_type.name,shape=shape,first=[float(y) for y in x[:6]],sum=float(x.sum()),weighted=float((x*w).sum()),absmax=float(np.abs(x).max()))
    (d/(f.stem+".values.json")).write_text(json.dumps(out,indent=0))
