/**
 * The faults of models' JSON that leave no doubt about what was meant: a comma before a closing bracket, line breaks and tabs
 * inside strings, one closing brace too few. Nothing else is mended (tool-calls.md §4).
 */

/** The text mended, and the same with one brace more. */
export function repairJson(text: string): readonly string[] {
  const parts: string[] = [];
  let inString = false;
  let open = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charAt(at);
    if (inString) {
      const escaped = ESCAPES.get(unit);
      if (escaped !== undefined) {
        parts.push(text.slice(open, at), escaped);
        open = at + 1;
      } else if (unit === "\\") at += 1;
      else if (unit === '"') inString = false;
    } else if (unit === '"') inString = true;
    else if (unit === ",") {
      const next = endOfBlanks(text, at + 1);
      const end = text.charAt(next);
      if (end === "}" || end === "]") {
        parts.push(text.slice(open, at));
        open = at + 1;
      }
      at = next - 1;
    }
  }
  const mended = parts.join("") + text.slice(open);
  return inString ? [] : [mended, `${mended}}`];
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
]);

function endOfBlanks(text: string, from: number): number {
  let at = from;
  while (/\s/.test(text.charAt(at))) at++;
  return at;
}
