/** Escapes of a string literal, as Python's `unicode-escape`: unknown escapes keep their backslash. */
import { TemplateError } from "./errors.ts";

const SIMPLE: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };
const ESCAPE = /\\(?:([0-7]{1,3})|([xuU])([\da-fA-F]{0,8})|([\s\S]))/g;

/** The text between the quotes, decoded. */
export function decodeString(body: string, line: number): string {
  if (!body.includes("\\")) return body;
  return body.replace(ESCAPE, (whole, octal?: string, kind?: string, hex?: string, other?: string) => {
    if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
    if (kind !== undefined) return decodeHex(kind, hex ?? "", line);
    if (other === "N") throw new TemplateError("\\N{…} escapes are not supported").at(line);
    return SIMPLE[other ?? ""] ?? whole;
  });
}

function decodeHex(kind: string, hex: string, line: number): string {
  const digits = HEX_DIGITS[kind] ?? 0;
  const code = Number.parseInt(hex.slice(0, digits), 16);
  if (hex.length < digits || code > 0x10ffff) throw new TemplateError(`truncated \\${kind} escape`).at(line);
  return String.fromCodePoint(code) + hex.slice(digits);
}
