/** Ids that a reply gives to its parts: unique, in the form that clients know from the services. */

const ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789";

/** The prefix and 24 lowercase alphanumerics, as ids of calls have them (tool-calls.md §4). */
export function callId(prefix: "call_" | "toolu_"): string {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return prefix + Array.from(bytes, (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/** The prefix and 32 hex digits. */
export function hexId(prefix: string): string {
  return prefix + crypto.randomUUID().replaceAll("-", "");
}
