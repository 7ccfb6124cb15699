/** Filters for URLs and HTML. */
import { Bound } from "./bind.ts";
import { iterate } from "./compare.ts";
import { Dict } from "./dict.ts";
import { escapeHtml, toText } from "./display.ts";
import { TemplateError } from "./errors.ts";
import type { Filter } from "./filters.ts";
import type { Run } from "./run.ts";
import { type Arguments, type Keywords, textOf, Undefined, type Value } from "./values.ts";

const SAFE_BYTES = /[A-Za-z0-9_.~-]/;

/** Percent-encoding of the UTF-8 bytes; unreserved characters and `/` (not in a query) stay. */
function quoteUrl(value: Value, inQuery: boolean): string {
  const encoded = Array.from(new TextEncoder().encode(toText(value)), (byte) => {
    const character = String.fromCharCode(byte);
    if (SAFE_BYTES.test(character) || (!inQuery && character === "/")) return character;
    if (inQuery && character === " ") return "+";
    return `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  });
  return encoded.join("");
}

function urlEncode(run: Run, input: Value): Value {
  if (textOf(input) !== undefined) {
    run.charge(toText(input).length);
    return quoteUrl(input, false);
  }
  if (input instanceof Dict) return Array.from(input.entries(), ([key, value]) => queryPair(key, value)).join("&");
  if (input === null || typeof input !== "object") return quoteUrl(input, false);
  return Array.from(iterate(input), (pair) => {
    const [key, value] = Array.from(iterate(pair));
    if (key === undefined || value === undefined) throw new TemplateError("urlencode needs pairs of key and value");
    return queryPair(key, value);
  }).join("&");
}

function queryPair(key: Value, value: Value): string {
  return `${quoteUrl(key, true)}=${quoteUrl(value, true)}`;
}

function xmlAttributes(_run: Run, input: Value, args: Arguments, keywords: Keywords): Value {
  const spaced = new Bound("xmlattr", ["autospace?"], args, keywords).flag("autospace", true);
  if (!(input instanceof Dict)) throw new TemplateError("xmlattr needs a mapping");
  const attributes: string[] = [];
  for (const [key, value] of input.entries()) {
    if (value === null || value instanceof Undefined) continue;
    const name = toText(key);
    if (/[\s/>=]/.test(name)) throw new TemplateError(`invalid character in attribute name '${name}'`);
    attributes.push(`${escapeHtml(name)}="${escapeHtml(toText(value))}"`);
  }
  return (spaced && attributes.length > 0 ? " " : "") + attributes.join(" ");
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", "#34": '"' };

/** Text without tags and comments, blanks collapsed, the five basic entities decoded. */
function stripTags(_run: Run, input: Value): Value {
  const bare = toText(input)
    .replace(/<!--[\s\S]*?-->/g, "")
    .replace(/<[^>]*>/g, "");
  const collapsed = bare
    .split(/\s+/)
    .filter((word) => word !== "")
    .join(" ");
  return collapsed.replace(/&(#?\w+);/g, (whole, name: string) => ENTITIES[name] ?? whole);
}

export const webFilters: readonly (readonly [string, Filter])[] = [
  ["urlencode", urlEncode],
  ["xmlattr", xmlAttributes],
  ["striptags", stripTags],
];
