/**
 * Reads a request's JSON object whatever its content type says: within the body limit, strictly UTF-8, no content
 * encoding. Top-level nulls are dropped, because `null` means "absent" in every field (http-openai.md §1).
 */
import { invalidRequest, RequestError } from "../errors.ts";

/** Throws `RequestError` 400, 413 or 415. */
export async function readJsonObject(request: Request, maxBytes: number): Promise<Record<string, unknown>> {
  const encoding = request.headers.get("content-encoding");
  if (encoding !== null && encoding.toLowerCase() !== "identity") {
    throw new RequestError({
      status: 415,
      type: "invalid_request_error",
      message: "compressed request bodies are not supported; send the JSON as it is",
    });
  }
  const value = parseJson(decodeUtf8(await readLimited(request, maxBytes)));
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalidRequest(null, "the request body must be a JSON object");
  }
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null));
}

async function readLimited(request: Request, maxBytes: number): Promise<Uint8Array> {
  const declared = Number(request.headers.get("content-length") ?? "0");
  if (declared > maxBytes) throw tooLarge(maxBytes);
  if (request.body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body) {
    size += chunk.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    chunks.push(chunk);
  }
  return chunks.length === 1 ? (chunks[0] ?? new Uint8Array(0)) : Buffer.concat(chunks);
}

function tooLarge(maxBytes: number): RequestError {
  return new RequestError({
    status: 413,
    type: "request_too_large",
    message: `the request body is larger than ${maxBytes} bytes; raise --max-body-mb to accept it`,
  });
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new RequestError(
      { status: 400, type: "invalid_request_error", message: "the request body is not valid UTF-8" },
      { cause: error },
    );
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new RequestError(
      { status: 400, type: "invalid_request_error", message: "the request body is not valid JSON" },
      { cause: error },
    );
  }
}
