/** A client's own words in a message to it. */

/** Kept short: a long text or a picture's data is never echoed. */
export function clip(text: string): string {
  return text.length <= 40 ? text : `${text.slice(0, 40)}…`;
}
