"""Fixtures of test/checkpoint: what mlx.core.quantize 0.32.2 (CPU) gives, and blocks decoded by the gguf package 0.19."""
from pathlib import Path
import numpy as np, gguf, mlx.core as mx
from gguf import GGMLQuantizationType as T
mx.set_default_device(mx.cpu)
rng=np.random.default_rng(7)
g=[]
for i in range(40): g.append(rng.standard_normal(32)*10.0**rng.uniform(-4,1))
for i in range(10): g.append(np.abs(rng.standard_normal(32)))
for i in range(10): g.append(-np.abs(rng.standard_normal(32)))
g.append(np.zeros(32)); g.append(np.full(32,0.37)); g.append(np.full(32,-5.0)); g.append(rng.integers(-3,4,32)); 
g.append(rng.standard_normal(32)*1e-9); g.append(np.linspace(-1,1,32)); g.append(np.r_[np.zeros(31),1]); g.append(np.r_[np.zeros(31),-1])
w=np.stack(g).astype(np.float32)
out={"values":mx.array(w)}
for b in (4,8):
    q,s,z=mx.quantize(mx.array(w),group_size=32,bits=b)
    out[f"q{b}"]=q; out[f"s{b}"]=s; out[f"b{b}"]=z
mx.save_safetensors(str(Path(__file__).parent)+"/affine-g32.safetensors",out)
rng=np.random.default_rng(11)
out={}
for name in ["Q4_0","Q4_1","Q5_0","Q5_1","Q8_0","Q4_K","Q5_K","Q6_K","Q3_K","Q2_K"]:
    t=T[name]; el,by=gguf.constants.GGML_QUANT_SIZES[t]
    n=max(2, 512//el) 
    raw=rng.integers(0,256,(n,by)).astype(np.uint8)
    def puth(col): raw[:,col:col+2]=(rng.uniform(0.001,0.02,n)*rng.choice([1,-1],n)).astype(np.float16).reshape(n,1).view(np.uint8)
    cols={"Q4_0":[0],"Q4_1":[0,2],"Q5_0":[0],"Q5_1":[0,2],"Q8_0":[0],"Q4_K":[0,2],"Q5_K":[0,2],"Q6_K":[208],"Q3_K":[108],"Q2_K":[80,82]}[name]
    for c in cols: puth(c)
    f=gguf.quants.dequantize(raw,t).astype(np.float32).reshape(-1)
    out[name+".raw"]=mx.array(raw.reshape(-1)); out[name+".f32"]=mx.array(f)
mx.save_safetensors(str(Path(__file__).parent)+"/gguf-blocks.safetensors",out)

# AWQ: packed by the public rule (nibble k of a word holds column [0,2,4,6,1,3,5,7][k]); value = (q - zero) * scale.
# nvfp4.safetensors is taken from the golden set of the drafters (policy/sampling, nvfp4_*).
rng=np.random.default_rng(3); IN,OUT,G=128,24,32
q=rng.integers(0,16,(IN,OUT)).astype(np.uint32); z=rng.integers(0,16,(IN//G,OUT)).astype(np.uint32); s=rng.uniform(.001,.02,(IN//G,OUT)).astype(np.float16)
def pack(x):
    words=np.zeros((x.shape[0],x.shape[1]//8),np.uint32)
    for k,c in enumerate([0,2,4,6,1,3,5,7]): words|=x[:,c::8]<<np.uint32(4*k)
    return words
sf=s.astype(np.float32)
val=(q.astype(np.float32)-np.repeat(z,G,0))*np.repeat(sf,G,0)
val8=(q.astype(np.float32)-8)*np.repeat(sf,G,0)
mx.save_safetensors(str(Path(__file__).parent)+"/awq.safetensors",{"qweight":mx.array(pack(q)),"qzeros":mx.array(pack(z)),"scales":mx.array(s),"values":mx.array(val.T.copy()),"values_no_zeros":mx.array(val8.T.copy())})
