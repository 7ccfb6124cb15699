/** Builds small GGUF files for the tests: any key, any tensor, and any damage. */

export type GgufField =
  | { readonly u32: number }
  | { readonly u64: bigint }
  | { readonly i32: number }
  | { readonly f32: number }
  | { readonly bool: number }
  | { readonly string: string }
  | { readonly strings: readonly string[] }
  | { readonly ints: readonly number[] }
  | { readonly raw: Uint8Array };

export interface GgufTensorSpec {
  readonly name: string;
  /** Row-major. */
  readonly shape: readonly number[];
  /** ggml type id. */
  readonly type: number;
  readonly data: Uint8Array;
  /** Instead of the next aligned place. */
  readonly offset?: number;
}

const ALIGNMENT = 32;

function u32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value >>> 0);
  return out;
}

function u64(value: number | bigint): Buffer {
  const out = Buffer.alloc(8);
  out.writeBigUInt64LE(BigInt(value));
  return out;
}

export function ggufString(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.byteLength), bytes]);
}

function field(value: GgufField): Buffer {
  if ("u32" in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ("i32" in value) return Buffer.concat([u32(5), u32(value.i32)]);
  if ("u64" in value) return Buffer.concat([u32(10), u64(value.u64)]);
  if ("bool" in value) return Buffer.concat([u32(7), Buffer.of(value.bool)]);
  if ("string" in value) return Buffer.concat([u32(8), ggufString(value.string)]);
  if ("strings" in value) {
    return Buffer.concat([u32(9), u32(8), u64(value.strings.length), ...value.strings.map(ggufString)]);
  }
  if ("ints" in value) return Buffer.concat([u32(9), u32(5), u64(value.ints.length), ...value.ints.map(u32)]);
  if ("raw" in value) return Buffer.from(value.raw);
  const out = Buffer.alloc(4);
  out.writeFloatLE(value.f32);
  return Buffer.concat([u32(6), out]);
}

/** A version 3 file with these keys (in order, doubles allowed) and tensors. */
export function ggufBytes(
  keys: readonly (readonly [string, GgufField])[],
  tensors: readonly GgufTensorSpec[],
  version = 3,
): Buffer {
  const head = [Buffer.from("GGUF"), u32(version), u64(tensors.length), u64(keys.length)];
  for (const [key, value] of keys) head.push(ggufString(key), field(value));
  const data: Buffer[] = [];
  let at = 0;
  for (const tensor of tensors) {
    const place = tensor.offset ?? at;
    head.push(ggufString(tensor.name), u32(tensor.shape.length));
    head.push(...[...tensor.shape].reverse().map((dim) => u64(dim)), u32(tensor.type), u64(place));
    const padding = (ALIGNMENT - (tensor.data.byteLength % ALIGNMENT)) % ALIGNMENT;
    data.push(Buffer.from(tensor.data), Buffer.alloc(padding));
    at += tensor.data.byteLength + padding;
  }
  const header = Buffer.concat(head);
  const gap = Buffer.alloc((ALIGNMENT - (header.byteLength % ALIGNMENT)) % ALIGNMENT);
  return Buffer.concat([header, gap, ...data]);
}
