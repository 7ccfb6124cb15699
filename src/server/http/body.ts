/**
 * Reads a request's JSON object whatever its content type says: within the limits of size, time and nesting, strictly
 * UTF-8, no content encoding. Top-level nulls are dropped, because `null` means "absent" in every field
 * (http-openai.md §1).
 */
import { eachItem, type JsonPlaces, keepSpelling, SPELLED_HERE } from "../../text/json-places.ts";
import { deeperThan } from "../dialect/depth.ts";
import { invalidRequest, RequestError } from "../errors.ts";
import type { TransportLimits } from "./limits.ts";

/**
 * What becomes part of a prompt or a grammar as it was written (text.md §5): `1.0` is not `1` to a template, and the order
 * of members is an order of words. Schemas of tools, arguments of earlier calls, schemas of answers.
 */
const FUNCTION: JsonPlaces = { parameters: SPELLED_HERE, input_schema: SPELLED_HERE };
const TOOL: JsonPlaces = { ...FUNCTION, function: FUNCTION };
const SPELLED: JsonPlaces = {
  tools: eachItem({ ...TOOL, tools: eachItem(TOOL) }),
  messages: eachItem({
    content: eachItem({ input: SPELLED_HERE }),
    tool_calls: eachItem({ function: { arguments: SPELLED_HERE } }),
  }),
  response_format: { json_schema: { schema: SPELLED_HERE } },
  text: { format: { schema: SPELLED_HERE } },
  output_config: { format: { schema: SPELLED_HERE } },
};

/** Levels of a whole body. Ours: a schema of a tool may have half as many. */
const BODY_NESTING_MAX = 200;

export interface BodyLimits extends Pick<TransportLimits, "bodyMs" | "bodyBytesPerSecond"> {
  readonly maxBytes: number;
  /** True: a request without a body is one with an empty object. */
  readonly empty: boolean;
}

/** Throws `RequestError` 400, 408, 413 or 415. */
export async function readJsonObject(request: Request, limits: BodyLimits): Promise<Record<string, unknown>> {
  const encoding = request.headers.get("content-encoding");
  if (encoding !== null && encoding.toLowerCase() !== "identity") {
    throw new RequestError({
      status: 415,
      type: "invalid_request_error",
      message: "compressed request bodies are not supported; send the JSON as it is",
    });
  }
  const bytes = await readLimited(request, limits);
  if (bytes.length === 0 && limits.empty) return {};
  const text = decodeUtf8(bytes);
  const value = parseJson(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalidRequest(null, "the request body must be a JSON object");
  }
  // Everything behind this may walk a value by recursion.
  if (deeperThan(value, BODY_NESTING_MAX)) {
    throw invalidRequest(null, `the request body is nested deeper than ${BODY_NESTING_MAX} levels`);
  }
  keepSpelling(text, value, SPELLED);
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== null));
}

async function readLimited(request: Request, limits: BodyLimits): Promise<Uint8Array> {
  const { maxBytes } = limits;
  const declared = Number(request.headers.get("content-length") ?? "0");
  if (declared > maxBytes) throw tooLarge(maxBytes);
  if (request.body === null) return new Uint8Array(0);
  const reader = request.body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  const began = performance.now();
  try {
    for (;;) {
      const allowed = limits.bodyMs + (size / limits.bodyBytesPerSecond) * 1000;
      const { value, done } = await inTime(reader.read(), began + allowed - performance.now());
      if (done) break;
      size += value.byteLength;
      if (size > maxBytes) throw tooLarge(maxBytes);
      chunks.push(value);
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error;
  }
  return chunks.length === 1 ? (chunks[0] ?? new Uint8Array(0)) : Buffer.concat(chunks);
}

async function inTime<T>(work: Promise<T>, milliseconds: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(tooSlow()), Math.max(0, milliseconds));
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function tooSlow(): RequestError {
  return new RequestError({
    status: 408,
    type: "invalid_request_error",
    message: "the request body did not arrive in time",
    headers: { Connection: "close" },
  });
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
