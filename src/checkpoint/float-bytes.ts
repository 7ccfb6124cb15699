/**
 * Raw bytes of F32, F16 and BF16 tensors as float32 numbers, and back with one rounding to nearest, ties to even.
 */

export type FloatDtype = "F32" | "F16" | "BF16";

/** True for the float types that weights, scales and biases come in. */
export function isFloatDtype(dtype: string): dtype is FloatDtype {
  return dtype === "F32" || dtype === "F16" || dtype === "BF16";
}

/** @param bytes aligned to the element size in its buffer */
export function decodeFloats(bytes: Uint8Array<ArrayBuffer>, dtype: FloatDtype): Float32Array<ArrayBuffer> {
  const { buffer, byteOffset, byteLength } = bytes;
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, byteLength / 4);
  if (dtype === "F16") return new Float32Array(new Float16Array(buffer, byteOffset, byteLength / 2));
  const halves = new Uint16Array(buffer, byteOffset, byteLength / 2);
  return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
}

export function encodeFloats(values: Float32Array<ArrayBuffer>, dtype: FloatDtype): Uint8Array<ArrayBuffer> {
  if (dtype === "F32") return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  if (dtype === "F16") return new Uint8Array(new Float16Array(values).buffer);
  return new Uint8Array(toBfloat16(values).buffer);
}

/** Bit patterns of the nearest bfloat16 values; NaN stays NaN. */
export function toBfloat16(values: Float32Array<ArrayBuffer>): Uint16Array<ArrayBuffer> {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const out = new Uint16Array(values.length);
  for (let i = 0; i < out.length; i++) {
    const x = bits[i] ?? 0;
    const isNan = (x & 0x7fffffff) > 0x7f800000;
    // Adding just under half of the last kept bit, plus that bit, rounds ties to even.
    out[i] = isNan ? 0x7fc0 : (x + 0x7fff + ((x >>> 16) & 1)) >>> 16;
  }
  return out;
}
