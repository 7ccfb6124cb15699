/** C strings of a fixed set of names (modes, masks): encoded once, and their memory kept. */

const cStrings = new Map<string, Uint8Array>();
/** A constant C string; its memory is kept. */
export function cString(text: string): Uint8Array {
  let bytes = cStrings.get(text);
  if (bytes === undefined) {
    bytes = new TextEncoder().encode(`${text}\0`);
    cStrings.set(text, bytes);
  }
  return bytes;
}
