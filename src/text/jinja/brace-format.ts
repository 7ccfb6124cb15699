/** `'{}: {x:>8.2f}'.format(a, x=b)`: Python's format strings and format specifications. */
import { getAttribute, getItem } from "./access.ts";
import { repr, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import { formatValue } from "./format-spec.ts";
import { checkLength, type Run } from "./run.ts";
import type { Arguments, Keywords, Value } from "./values.ts";

/** Fields inside a specification may not hold fields of their own that do. */
const NESTING_MAX = 2;

export function braceFormat(run: Run, text: string, args: Arguments, keywords: Keywords): Value {
  return new Formatter(run, args, keywords).format(text, NESTING_MAX);
}

class Formatter {
  private automatic = 0;
  private numbering: "unknown" | "automatic" | "manual" = "unknown";

  constructor(
    private readonly run: Run,
    private readonly args: Arguments,
    private readonly keywords: Keywords,
  ) {}

  format(text: string, levels: number): string {
    if (levels < 0) throw new TemplateError("the format string is nested too deeply");
    let result = "";
    for (let at = 0; at < text.length; ) {
      const brace = nextBrace(text, at);
      result += text.slice(at, brace);
      if (brace >= text.length) break;
      if (text[brace] === text[brace + 1]) {
        result += text[brace];
        at = brace + 2;
      } else {
        if (text[brace] === "}") throw new TemplateError("single '}' encountered in format string");
        const end = fieldEnd(text, brace + 1);
        result += this.field(text.slice(brace + 1, end), levels);
        at = end + 1;
      }
      checkLength(result.length);
    }
    return result;
  }

  private field(source: string, levels: number): string {
    this.run.step();
    const match = /^([^!:[\]]*(?:\[[^\]]*\][^!:[\]]*)*)(?:!([^:]*))?(?::([\s\S]*))?$/.exec(source);
    if (match === null) throw new TemplateError(`bad field '{${source}}' in format string`);
    const value = this.converted(this.lookUp(match[1] ?? ""), match[2]);
    return formatValue(value, this.format(match[3] ?? "", levels - 1));
  }

  private converted(value: Value, conversion: string | undefined): Value {
    if (conversion === undefined) return value;
    if (conversion === "s") return toText(value);
    if (conversion === "r" || conversion === "a") return repr(value);
    throw new TemplateError(`unknown conversion '${conversion}' in format string`);
  }

  private lookUp(path: string): Value {
    const [head = ""] = /^[^.[]*/.exec(path) ?? [];
    let value = this.argument(head);
    for (const step of path.slice(head.length).matchAll(/\.([^.[]+)|\[([^\]]+)\]|(.)/g)) {
      const [, attribute, index, bad] = step;
      if (bad !== undefined) throw new TemplateError(`bad field '{${path}}' in format string`);
      if (attribute !== undefined) value = getAttribute(value, attribute);
      else if (index !== undefined) value = getItem(value, /^\d+$/.test(index) ? BigInt(index) : index);
    }
    return value;
  }

  private argument(name: string): Value {
    if (name !== "" && !/^\d+$/.test(name)) {
      const value = this.keywords.get(name);
      if (value === undefined) throw new TemplateError(`the format needs an argument '${name}'`);
      return value;
    }
    const numbering = name === "" ? "automatic" : "manual";
    if (this.numbering !== "unknown" && this.numbering !== numbering) {
      throw new TemplateError("a format string cannot mix '{}' and '{0}'");
    }
    this.numbering = numbering;
    const index = name === "" ? this.automatic++ : Number(name);
    const value = this.args[index];
    if (value === undefined) throw new TemplateError(`the format needs an argument ${index}`);
    return value;
  }
}

function nextBrace(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) if (text[at] === "{" || text[at] === "}") return at;
  return text.length;
}

/** Index of the `}` that closes the field opened before `from`. */
function fieldEnd(text: string, from: number): number {
  let depth = 1;
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "{") depth += 1;
    else if (text[at] === "}") depth -= 1;
    if (depth === 0) return at;
  }
  throw new TemplateError("expected '}' before end of string");
}
