/**
 * `tokenizer.json`'s "decoder" → what the detokenizer runs. Every member is known by name or the file is refused: a
 * decoder that is skipped silently damages all output.
 */

import { TokenizerError } from "../tokenizer-error.ts";
import { type JsonObject, objectOf, objectsOf, stringOf } from "../tokenizer-json.ts";
import type { Replacement } from "../utf8-decoder.ts";
import { byteFallback } from "./byte-fallback.ts";
import { byteLevel } from "./byte-level.ts";
import { metaspace } from "./metaspace.ts";
import type { PieceStage } from "./piece.ts";
import { replace } from "./replace.ts";

export interface StripRule {
  readonly character: string;
  readonly start: number;
  readonly stop: number;
}

export interface TokenDecoder {
  readonly stages: readonly PieceStage[];
  /** How ill-formed bytes are counted. */
  readonly replacement: Replacement;
  readonly strip: StripRule | null;
  /** Tokens are bytes in the GPT-2 alphabet. */
  readonly byteLevel: boolean;
}

/**
 * @param config the "decoder" object; null and kinds that cannot be run token by token are refused.
 * @throws TokenizerError naming the kind.
 */
export function createTokenDecoder(config: JsonObject | null): TokenDecoder {
  if (config === null) throw new TokenizerError("tokenizer.json has no decoder: its output could not be put together");
  const members = config.type === "Sequence" ? objectsOf(config.decoders) : [config];
  const stages: PieceStage[] = [];
  const seen = new Set<string>();
  let strip: StripRule | null = null;
  for (const member of members) {
    const type = stringOf(member.type) ?? "(no type)";
    if (strip !== null) throw refusal(`${type} after Strip`);
    switch (type) {
      case "ByteLevel":
        stages.push(byteLevel);
        break;
      case "ByteFallback":
        stages.push(byteFallback);
        break;
      case "Fuse":
        break;
      case "Replace":
        if (seen.has("ByteFallback") || seen.has("ByteLevel")) throw refusal("Replace after bytes were decoded");
        stages.push(createReplace(member));
        break;
      case "Metaspace":
        stages.push(metaspace(stringOf(member.replacement) ?? "▁", prependsMetaspace(member)));
        break;
      case "Strip":
        if (config.type === "Sequence" && !seen.has("Fuse")) throw refusal("Strip of single tokens");
        strip = createStrip(member);
        break;
      default:
        throw refusal(type);
    }
    seen.add(type);
  }
  const replacement = seen.has("ByteFallback") ? "byte" : "subpart";
  return { stages, replacement, strip, byteLevel: seen.has("ByteLevel") };
}

/** Whether a Metaspace object prepends its character; files older than `prepend_scheme` say `add_prefix_space`. */
export function prependsMetaspace(config: JsonObject): boolean {
  const scheme = stringOf(config.prepend_scheme);
  return scheme === null ? config.add_prefix_space !== false : scheme !== "never";
}

function createReplace(config: JsonObject): PieceStage {
  const literal = stringOf(objectOf(config.pattern)?.String);
  if (literal === null || literal === "") throw refusal("Replace by a regular expression");
  return replace(literal, stringOf(config.content) ?? "");
}

function createStrip(config: JsonObject): StripRule {
  const character = stringOf(config.content) ?? "";
  if (character.length !== 1) throw refusal(`Strip of ${JSON.stringify(character)}`);
  return { character, start: countOf(config.start), stop: countOf(config.stop) };
}

function countOf(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : 0;
}

function refusal(what: string): TokenizerError {
  return new TokenizerError(`tokenizer.json: decoder ${what} is not supported`);
}
