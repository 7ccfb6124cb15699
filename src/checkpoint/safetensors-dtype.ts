/**
 * Element types of the safetensors format and their widths. Sub-byte types count in bits; a tensor's size in bits must
 * be a multiple of 8. Source: the safetensors format description and hub.md §10 row 6.
 */

export type SafetensorsDtype =
  | "BOOL"
  | "U8"
  | "I8"
  | "U16"
  | "I16"
  | "F16"
  | "BF16"
  | "U32"
  | "I32"
  | "F32"
  | "U64"
  | "I64"
  | "F64"
  | "F8_E4M3"
  | "F8_E5M2"
  | "F8_E8M0"
  | "F4";

const BITS: ReadonlyMap<string, number> = new Map<SafetensorsDtype, number>([
  ["BOOL", 8],
  ["U8", 8],
  ["I8", 8],
  ["U16", 16],
  ["I16", 16],
  ["F16", 16],
  ["BF16", 16],
  ["U32", 32],
  ["I32", 32],
  ["F32", 32],
  ["U64", 64],
  ["I64", 64],
  ["F64", 64],
  ["F8_E4M3", 8],
  ["F8_E5M2", 8],
  ["F8_E8M0", 8],
  ["F4", 4],
]);

/** True when `name` is one of the element types that we read. */
export function isSafetensorsDtype(name: string): name is SafetensorsDtype {
  return BITS.has(name);
}

/** Width of one element in bits. */
export function dtypeBits(dtype: SafetensorsDtype): number {
  return BITS.get(dtype) ?? 0;
}

/** F8 and F4 types: values of a quantization layout, never plain weights. */
export function isQuantizedStorage(dtype: SafetensorsDtype): boolean {
  return dtype.startsWith("F8_") || dtype === "F4";
}
