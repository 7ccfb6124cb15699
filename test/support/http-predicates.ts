/** The rules of the shared HTTP cases in code, by the case's name. The first reply is the case's, the others its further steps'. */
import { expect } from "bun:test";
import type { Predicate } from "./http-cases.ts";
import { fieldAt, type Reply } from "./http-reply.ts";

export const PREDICATES: Readonly<Record<string, Predicate>> = {
  "chat-system-after-user": async ({ replies: [first], again }) => {
    const without = await again(0, (body) => ({
      ...body,
      messages: list(body.messages).filter((m) => roleOf(m) !== "system"),
    }));
    expect(promptTokens(first)).toBeGreaterThan(promptTokens(without));
  },
  "chat-developer-role": ({ replies: [first, second] }) => {
    expect(promptTokens(first)).toBe(promptTokens(second));
    expect(first?.content).toBe(second?.content);
  },
  "chat-consecutive-user-messages": async ({ replies: [first], again }) => {
    for (const index of [0, 1]) {
      const one = await again(0, (body) => ({ ...body, messages: [list(body.messages)[index]] }));
      expect(promptTokens(first)).toBeGreaterThan(promptTokens(one));
    }
  },
  "chat-null-content-with-tool-calls": async ({ replies: [first], again }) => {
    const empty = await again(0, (body) => ({
      ...body,
      messages: list(body.messages).map((m) => (roleOf(m) === "assistant" ? { ...Object(m), content: "" } : m)),
    }));
    expect(promptTokens(first)).toBe(promptTokens(empty));
    expect(first?.content).toBe(empty.content);
  },
  "chat-content-array-all-parts": ({ replies: [first, second] }) => {
    expect(promptTokens(first) - promptTokens(second)).toBeGreaterThanOrEqual(4);
  },
  "chat-image-part-text-model": ({ replies: [first] }) => {
    expect(first?.at("error", "message")).toMatch(/image/);
    expect(first?.at("error", "type")).toBe("invalid_request_error");
    expect(first?.text).not.toContain("iVBOR");
  },
  "chat-messages-empty": ({ replies: [first] }) => {
    expect(first?.at("error", "message")).toContain("messages");
    expect(first?.at("error", "type")).toBe("invalid_request_error");
  },
  "chat-max-tokens-zero": ({ replies: [first] }) => {
    if (first?.status === 400) expect(first.at("error", "message")).toContain("max_tokens");
    else {
      expect([first?.content, finishOf(first)]).toEqual(["", "length"]);
      expect(first?.at("usage", "completion_tokens")).toBe(0);
    }
  },
  "chat-max-tokens-one": ({ replies: [first, second] }) => {
    expect(first?.at("usage", "completion_tokens")).toBe(1);
    expect(finishOf(first)).toMatch(/^(?:length|stop)$/);
    expect([second?.content, finishOf(second)]).toEqual([first?.content, finishOf(first)]);
    expect(second?.frames.at(-1)).toBe("[DONE]");
  },
  "chat-nan-temperature": isRefusal(null),
  "chat-temperature-overflow": isRefusal("temperature"),
  "chat-param-wrong-type": isRefusal("temperature"),
  "chat-body-is-array": isRefusal(null),
  "chat-body-bad-utf8": isRefusal(null),
  "chat-stop-string-equals-list": ({ replies: [first, second, third] }) => {
    expect(first?.content).not.toContain(",");
    expect(finishOf(first)).toMatch(/^(?:length|stop)$/);
    expect(second?.content).toBe(first?.content);
    expect(third?.content).toBe(first?.content);
  },
  "chat-stop-empty-string": async ({ replies: [first], again }) => {
    if (first?.status === 400) return expect(first.at("error", "message")).toContain("stop");
    const without = await again(0, ({ stop: _stop, ...body }) => body);
    expect(first?.content).toBe(without.content);
  },
  "chat-seed-repeats": async ({ replies: [first, second, third], again }) => {
    expect(second?.content).toBe(first?.content);
    const others = [third?.content];
    for (const seed of [9, 10]) others.push((await again(0, (body) => ({ ...body, seed }))).content);
    expect(others.some((content) => content !== first?.content)).toBe(true);
  },
  "chat-n-two": ({ replies: [first] }) => {
    if (first?.status === 400) return expect(first.at("error", "message")).toContain("n");
    const choices = list(first?.at("choices"));
    expect(choices.map((choice) => fieldAt(choice, ["index"]))).toEqual([0, 1]);
    for (const choice of choices) expect(fieldAt(choice, ["finish_reason"])).toMatch(/^(?:length|stop)$/);
    const [one, two] = choices.map((choice) => fieldAt(choice, ["message", "content"]));
    expect(one).not.toBe(two);
    expect(first?.at("usage", "completion_tokens")).toBeGreaterThan(1);
  },
  "chat-stream-usage": ({ replies: [first, second] }) => {
    const frames = first?.frames ?? [];
    expect(first?.isStream).toBe(true);
    expect(frames.pop()).toBe("[DONE]");
    const usage = frames.pop();
    expect(fieldAt(usage, ["choices"])).toEqual([]);
    for (const count of ["prompt_tokens", "completion_tokens", "total_tokens"]) {
      expect(fieldAt(usage, ["usage", count])).toBeNumber();
    }
    for (const key of ["id", "created"]) expect(new Set(first?.each(key)).size).toBe(1);
    expect(first?.each("choices", 0, "finish_reason").length).toBe(1);
    expect(second?.each("choices").every((choices) => list(choices).length === 1)).toBe(true);
    expect(second?.each("usage")).toEqual([]);
  },
  "chat-stream-utf8": ({ replies: [first, second] }) => {
    for (const delta of first?.each("choices", 0, "delta", "content") ?? [])
      expect(String(delta).isWellFormed()).toBe(true);
    expect(first?.content).toBe(second?.content);
    expect(second?.at("usage", "completion_tokens")).toBeLessThanOrEqual(64);
  },
  "cors-preflight": ({ replies: [first] }) => {
    expect(first?.text).toBe("");
    expect(first?.headers.get("access-control-allow-origin")).toMatch(/^(?:http:..localhost:3000|\*)$/);
    expect(first?.headers.get("access-control-allow-methods")).toContain("POST");
    const allowed = first?.headers.get("access-control-allow-headers")?.toLowerCase();
    for (const header of ["content-type", "authorization", "x-api-key", "anthropic-version"])
      expect(allowed).toContain(header);
  },
  "head-root-and-unknown-route": ({ replies: [first, second] }) => {
    expect(first?.text).toBe("");
    expect(second?.headers.get("content-type")).toContain("application/json");
    expect(second?.at("error", "message")).toBeString();
  },
  "messages-stream-order": ({ replies: [first] }) => {
    const types = (first?.each("type") ?? []).filter((type) => type !== "ping");
    expect(types.join(" ")).toMatch(
      /^message_start(?: content_block_start(?: content_block_delta)* content_block_stop)+ message_delta message_stop$/,
    );
    const starts = (first?.frames ?? []).filter((frame) => fieldAt(frame, ["type"]) === "content_block_start");
    expect(starts.map((frame) => fieldAt(frame, ["index"]))).toEqual(starts.map((_, index) => index));
    expect(first?.each("delta", "stop_reason").length).toBe(1);
    expect(first?.each("usage", "output_tokens").at(-1)).toBeNumber();
    expect(first?.each("delta", "text")).not.toContain("");
    expect(first?.text).not.toContain("[DONE]");
    const named = [...(first?.text ?? "").matchAll(/^event: (.*)\ndata: (.*)$/gm)];
    expect(named.length).toBe(first?.frames.length ?? -1);
    for (const [, name, data] of named) expect(fieldAt(JSON.parse(data ?? ""), ["type"])).toBe(name);
  },
  "messages-system-role-inside": ({ replies: [first] }) => {
    expect(first?.at("type")).toBe("message");
  },
  "count-tokens-counts-all": ({ replies: [first, second, third, fourth] }) => {
    const count = (reply: Reply | undefined) => Number(reply?.at("input_tokens"));
    expect(Number.isInteger(count(first))).toBe(true);
    expect(count(first) - count(second)).toBeGreaterThanOrEqual(60);
    // Equal where the template renders no tools.
    expect(count(third)).toBeLessThanOrEqual(count(second));
    const usage = Object(fourth?.at("usage"));
    expect(usage.input_tokens + (usage.cache_read_input_tokens ?? 0)).toBe(count(third));
  },
  "messages-prompt-too-long": ({ replies: [first] }) => {
    expect(first?.at("type")).toBe("error");
    expect(first?.at("error", "type")).toBe("invalid_request_error");
    expect(first?.at("error", "message")).toMatch(/^prompt is too long: \d+ tokens > \d+ maximum/);
    expect(first?.firstByteMs).toBeLessThan(5000);
  },
  "disconnect-frees-slot": ({ replies: [, second, third] }) => {
    expect(second?.firstByteMs).toBeLessThan(2000);
    expect(third?.at("queue", "running")).toBe(0);
  },
};

/** A 400 with a JSON error that names the field. */
function isRefusal(param: string | null): Predicate {
  return ({ replies: [first] }) => {
    expect(first?.at("error", "message")).toBeString();
    expect(first?.at("error", "type")).toBe("invalid_request_error");
    expect(first?.at("error", "param")).toBe(param);
  };
}

function promptTokens(reply: Reply | undefined): number {
  return Number(reply?.at("usage", "prompt_tokens"));
}

function finishOf(reply: Reply | undefined): unknown {
  if (reply?.isStream !== true) return reply?.at("choices", 0, "finish_reason");
  const reasons = reply.each("choices", 0, "finish_reason");
  expect(reasons.length).toBe(1);
  return reasons[0];
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function roleOf(message: unknown): unknown {
  return fieldAt(message, ["role"]);
}
