/**
 * A model's tokens as the grammar engine takes them: each as its bytes, written in GPT-2's byte alphabet, whatever the
 * tokenizer's own form. A marker is one reserved byte (the i-th U+0001 + i), so that the text of a string can never be
 * taken for it; every other control token, and text that holds a reserved byte, is "": an empty token is never allowed.
 */
import { BYTE_CHARACTERS } from "../../text/byte-alphabet.ts";
import type { TextTokenizer } from "../../text/index.ts";

/** Bytes 1…8 are reserved: control characters that no text needs. The last one is never spelled: rules that match nothing. */
const RESERVED_LAST = 8;
export const MARKERS_MAX = RESERVED_LAST - 1;

export interface MarkedVocabulary {
  /** By id; as long as the model's head. */
  readonly tokens: readonly string[];
  /** Ids of the markers, in their order. */
  readonly markerIds: readonly number[];
}

/**
 * @param size rows of the head that are tokens
 * @throws RangeError for more markers than there are reserved bytes, or one that is no token
 */
export function markedVocabulary(tokenizer: TextTokenizer, size: number, markers: readonly string[]): MarkedVocabulary {
  if (markers.length > MARKERS_MAX) throw new RangeError(`a grammar has at most ${MARKERS_MAX} markers`);
  const markerIds = markers.map((marker) => {
    const id = tokenizer.tokenId(marker);
    if (id === undefined || id >= size) throw new RangeError(`the model has no token ${marker}`);
    return id;
  });
  const blank = new Set(tokenizer.control.map(({ id }) => id));
  const unk = tokenizer.special.unk === null ? undefined : tokenizer.tokenId(tokenizer.special.unk);
  if (unk !== undefined) blank.add(unk);
  const tokens = Array.from({ length: size }, (_, id) => (blank.has(id) ? "" : spell(tokenizer.tokenBytes(id))));
  for (const [index, id] of markerIds.entries()) tokens[id] = BYTE_CHARACTERS[index + 1] ?? "";
  return { tokens, markerIds };
}

function spell(bytes: Uint8Array): string {
  let out = "";
  for (const byte of bytes) {
    if (byte >= 1 && byte <= RESERVED_LAST) return "";
    out += BYTE_CHARACTERS[byte] ?? "";
  }
  return out;
}
