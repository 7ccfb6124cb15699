/** Whether a reply is one of its dialect: the right envelope, whole frames, an end. Throws with what is wrong. */
import { expect } from "bun:test";
import { at } from "./harness.ts";

type Dialect = "chat" | "completions" | "responses" | "messages" | "count" | "other";

function dialectOf(path: string): Dialect {
  const plain = path.replace(/\?.*$/, "").replace(/\/$/, "").replace(/^\/v1/, "");
  if (plain === "/chat/completions") return "chat";
  if (plain === "/completions") return "completions";
  if (plain === "/responses") return "responses";
  if (plain === "/messages") return "messages";
  return plain === "/messages/count_tokens" ? "count" : "other";
}

const WHOLE: Readonly<Record<Dialect, (body: unknown) => void>> = {
  chat: (body) => expect(at(body, "object")).toBe("chat.completion"),
  completions: (body) => expect(at(body, "object")).toBe("text_completion"),
  responses: (body) => expect(at(body, "object")).toBe("response"),
  messages: (body) => expect(at(body, "type")).toBe("message"),
  count: (body) => expect(at(body, "input_tokens")).toBeNumber(),
  other: (body) => expect(body).toBeObject(),
};

export function expectWellFormed(path: string, reply: Response, text: string): void {
  expect(text).not.toMatch(/node_modules|\n\s+at |\/src\/server/);
  const dialect = dialectOf(path);
  const type = reply.headers.get("content-type") ?? "";
  if (reply.status !== 200) expectError(dialect, JSON.parse(text));
  else if (type.startsWith("text/event-stream")) expectFrames(dialect, text);
  // The page of the API and the counters' text have forms of their own.
  else if (type.startsWith("application/json")) WHOLE[dialect](JSON.parse(text));
}

function expectError(dialect: Dialect, body: unknown): void {
  expect(at(body, "error", "message")).toBeString();
  expect(at(body, "error", "type")).toBeString();
  if (dialect === "messages" || dialect === "count") expect(at(body, "type")).toBe("error");
  else expect(at(body, "type")).toBeUndefined();
}

function expectFrames(dialect: Dialect, text: string): void {
  expect(text).toEndWith("\n\n");
  const frames = text.slice(0, -2).split("\n\n");
  const last = frames.at(-1) ?? "";
  for (const frame of frames) {
    const data = /^(?:event: [a-z_.]+\n)?data: (.*)$/.exec(frame)?.[1];
    if (data === undefined) expect(frame).toStartWith(": ");
    else if (data !== "[DONE]") expect(JSON.parse(data)).toBeObject();
  }
  if (dialect === "messages") expect(last).toMatch(/^event: (?:message_stop|error)\n/);
  else if (dialect === "responses") expect(last).toMatch(/^event: response\.(?:completed|incomplete|failed)\n/);
  else if (!/^data: \{"error":/.test(last)) expect(last).toBe("data: [DONE]");
}
