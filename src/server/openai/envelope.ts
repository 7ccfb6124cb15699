/** OpenAI's error envelope (http-openai.md §7), as a body and as a frame of a stream whose headers are out. */
import type { RequestError } from "../errors.ts";
import { dataFrame, type SseFrame } from "../http/sse.ts";

export function errorBody(error: RequestError) {
  return { error: { message: error.message, type: error.type, param: error.param, code: error.code } };
}

/** The stream ends after this frame, without `[DONE]`. */
export function errorFrame(error: RequestError): SseFrame {
  return dataFrame({ error: { message: error.message, type: error.type, code: error.code } });
}
