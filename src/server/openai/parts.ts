/** Content that is a text or a list of parts. The loaded model reads text only: another part is refused by its kind. */
import { type Static, Type as t } from "@sinclair/typebox";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";

export const partSchema = t.Union([
  t.String(),
  t.Object({ type: t.String(), text: t.Optional(t.Unknown()), refusal: t.Optional(t.Unknown()) }),
]);

export type Part = Static<typeof partSchema>;

/** Kinds of text parts of chat completions and responses. */
const TEXT_KINDS = ["text", "input_text", "output_text"];

/** Text parts joined by newlines; a part's data is never echoed. */
export function contentText(content: string | readonly Part[], at: string): string {
  if (typeof content === "string") return content;
  return content.map((part, index) => partText(part, `${at}[${index}]`)).join("\n");
}

function partText(part: Part, at: string): string {
  if (typeof part === "string") return part;
  const isRefusal = part.type === "refusal";
  if (!isRefusal && !TEXT_KINDS.includes(part.type)) {
    const message = `content part '${clip(part.type)}' is not supported: the loaded model reads text only`;
    throw invalidRequest(`${at}.type`, message);
  }
  const text = isRefusal ? part.refusal : part.text;
  if (typeof text === "string") return text;
  const field = isRefusal ? "refusal" : "text";
  throw invalidRequest(`${at}.${field}`, `a ${part.type} part needs '${field}'`);
}
