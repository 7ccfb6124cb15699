/** Python's short string literals (language reference §2.4.1): quotes of either kind, escapes as in `str`. */

const SIMPLE: ReadonlyMap<string, string> = new Map([
  ["n", "\n"],
  ["t", "\t"],
  ["r", "\r"],
  ["b", "\b"],
  ["f", "\f"],
  ["v", "\v"],
  ["a", "\x07"],
  ["\\", "\\"],
  ["'", "'"],
  ['"', '"'],
  ["\n", ""],
]);

const CODE = /x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})/y;

/** The literal that begins at `start`, with the place behind it; null if it does not end. Line breaks may stand in it. */
export function pythonString(text: string, start: number): { readonly value: string; readonly end: number } | null {
  const quote = text.charAt(start);
  const parts: string[] = [];
  let open = start + 1;
  for (let at = open; at < text.length; at++) {
    const unit = text.charAt(at);
    if (unit === quote) return { value: parts.join("") + text.slice(open, at), end: at + 1 };
    if (unit !== "\\") continue;
    const escaped = escapeAt(text, at + 1);
    if (escaped !== null) {
      parts.push(text.slice(open, at), escaped.value);
      open = escaped.end;
      at = open - 1;
    } else at += 1;
  }
  return null;
}

/** Null for what is no escape: then the backslash is text. */
function escapeAt(text: string, at: number): { readonly value: string; readonly end: number } | null {
  const simple = SIMPLE.get(text.charAt(at));
  if (simple !== undefined) return { value: simple, end: at + 1 };
  CODE.lastIndex = at;
  const [all, two, four, eight, octal] = CODE.exec(text) ?? [];
  if (all === undefined) return null;
  const code = octal === undefined ? Number.parseInt(two ?? four ?? eight ?? "", 16) : Number.parseInt(octal, 8);
  return code > 0x10ffff ? null : { value: String.fromCodePoint(code), end: at + all.length };
}
