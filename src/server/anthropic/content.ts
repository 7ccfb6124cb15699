/**
 * Content blocks as text. A string and a list with one text block of it give the same text: clients switch between
 * the forms from one request to the next, and earlier turns must render the same.
 */
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import type { Block, Content } from "./schema.ts";

/** Stands where a picture or a file was: refusing the request would end a session over a tool's screenshot. */
export const MEDIA_OMITTED = "[image omitted: the loaded model has no vision]";

/** The blocks of a content; a string is one text block. */
export function blocksOf(content: Content | undefined): readonly Block[] {
  if (content === undefined || content === null) return [];
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.map((block) => (typeof block === "string" ? { type: "text", text: block } : block));
}

/** Blocks of unknown form, as tool results hold them; what is no block is left out. */
export function looseBlocks(content: unknown): readonly Block[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap((block: unknown) => {
    if (typeof block === "string") return [{ type: "text", text: block }];
    return isBlock(block) ? [block] : [];
  });
}

/** The readable blocks, joined by newlines. Throws 400 for a text block without text. */
export function textOf(blocks: readonly Block[], at: string): string {
  const texts = blocks.map((block, index) => blockText(block, `${at}[${index}]`));
  return texts.filter((text) => text !== "").join("\n");
}

/**
 * Why the model would see nothing of a turn although something was sent: it is all pictures, files or blocks of an
 * unknown type. Null when there is something to read, or nothing was sent.
 */
export function unreadable(blocks: readonly Block[], at: string): string | null {
  const isRead = (block: Block) => {
    if (block.type === "tool_result") return true;
    const text = blockText(block, at);
    return text !== "" && (block.type === "text" || text !== MEDIA_OMITTED);
  };
  const lost = blocks.find(({ type }) => type !== "text");
  if (lost === undefined || blocks.some(isRead)) return null;
  return `content block '${clip(lost.type)}' is not supported: the loaded model reads text only`;
}

function blockText(block: Block, at: string): string {
  switch (block.type) {
    case "text":
      if (typeof block.text !== "string") throw invalidRequest(`${at}.text`, `'${at}.text' must be a string`);
      return block.text;
    case "image":
      return MEDIA_OMITTED;
    case "document":
      return documentText(block, at);
    case "search_result":
      return [block.title, block.source, innerText(block.content, `${at}.content`)]
        .filter((part) => typeof part === "string" && part !== "")
        .join("\n");
    case "tool_reference":
      return typeof block.tool_name === "string" ? block.tool_name : "";
    default:
      return "";
  }
}

/** A document that came as text is read; of any other form only its place is kept. */
function documentText({ source }: Block, at: string): string {
  if (typeof source !== "object" || source === null || !("type" in source)) return MEDIA_OMITTED;
  if (source.type === "text" && "data" in source && typeof source.data === "string") return source.data;
  if (source.type === "content" && "content" in source) return innerText(source.content, `${at}.source.content`);
  return MEDIA_OMITTED;
}

/** Documents and search results hold texts and pictures, and nothing that holds more: a body cannot make this deep. */
function innerText(content: unknown, at: string): string {
  return textOf(
    looseBlocks(content).filter(({ type }) => type === "text" || type === "image"),
    at,
  );
}

function isBlock(value: unknown): value is Block {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}
