/** The API key check: `Authorization: Bearer K` or `x-api-key: K`, compared in constant time (http-openai.md §1). */
import { createHash, timingSafeEqual } from "node:crypto";
import { RequestError } from "../errors.ts";

/** Throws 401 unless the request carries the key. */
export function checkApiKey(request: Request, apiKey: string): void {
  const bearer = /^bearer +(.*)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const given = [bearer, request.headers.get("x-api-key") ?? undefined];
  // Both are always compared, so the time tells nothing about which header was right.
  const matches = given.map((key) => key !== undefined && sameKey(key, apiKey));
  if (matches.includes(true)) return;
  throw new RequestError({
    status: 401,
    type: "authentication_error",
    code: "invalid_api_key",
    message: "invalid api key",
    headers: { "WWW-Authenticate": "Bearer" },
  });
}

/** Hashes make both sides one length, which `timingSafeEqual` needs, and hide the key's own length. */
function sameKey(given: string, wanted: string): boolean {
  return timingSafeEqual(sha256(given), sha256(wanted));
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text, "utf8").digest();
}
