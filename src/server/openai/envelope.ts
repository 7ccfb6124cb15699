/** OpenAI's error envelope (http-openai.md §7), as a body and as a frame of a stream whose headers are out. */
import { type Static, Type as t } from "@sinclair/typebox";
import { ERROR_TYPES, type RequestError } from "../errors.ts";
import { dataFrame, type SseFrame } from "../http/sse.ts";
import { oneOf, orNull } from "../openapi/schemas.ts";

const fields = {
  message: t.String(),
  type: oneOf(...ERROR_TYPES),
  code: orNull(t.String()),
};

export const errorBodySchema = t.Object(
  { error: t.Object({ ...fields, param: orNull(t.String({ description: "The field that is wrong." })) }) },
  { $id: "Error" },
);

/** The end of a stream that could not be finished. */
export const errorEventSchema = t.Object({ error: t.Object(fields) }, { $id: "ErrorEvent" });

export function errorBody(error: RequestError): Static<typeof errorBodySchema> {
  return { error: { message: error.message, type: error.type, param: error.param, code: error.code } };
}

/** The stream ends after this frame, without `[DONE]`. */
export function errorFrame(error: RequestError): SseFrame {
  const body: Static<typeof errorEventSchema> = {
    error: { message: error.message, type: error.type, code: error.code },
  };
  return dataFrame(body);
}
