/** `serve` of the compiled executable with the official OpenAI client, cut connections, and both ways to shut down. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { EXECUTABLE, type RunningServer, requireExecutable, serve, TINY_MODEL, temporaryCache } from "./executable.ts";

const cache = temporaryCache();
let server: RunningServer;
let client: OpenAI;

beforeAll(async () => {
  requireExecutable();
  server = await serve(cache.path, ["--model", TINY_MODEL, "--max-batch", "4"]);
  await server.ready();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  cache.remove();
});

/** The token ids that `return_token_ids` adds to a completion. */
async function completionIds(body: Record<string, unknown>): Promise<readonly number[]> {
  const reply = await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ return_token_ids: true, ...body }),
  });
  expect(reply.status).toBe(200);
  const { choices } = (await reply.json()) as { choices: { token_ids: number[] }[] };
  return choices[0]?.token_ids ?? [];
}

test("models", async () => {
  const models = await client.models.list();
  const id = models.data[0]?.id ?? "";
  expect(id).toBe("llama-f32");
  expect((await client.models.retrieve(id)).id).toBe(id);
});

test("a chat answer, streamed and not, is the same text", async () => {
  const body = {
    model: "any",
    messages: [{ role: "user" as const, content: "Hello" }],
    max_tokens: 24,
    temperature: 0,
  };
  const whole = await client.chat.completions.create(body);
  let text = "";
  let finish: string | null = null;
  let usage = 0;
  for await (const chunk of await client.chat.completions.create({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  })) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage?.completion_tokens ?? usage;
  }
  expect(text).toBe(whole.choices[0]?.message.content ?? "");
  expect(finish).toBe(whole.choices[0]?.finish_reason ?? "");
  expect(usage).toBe(whole.usage?.completion_tokens ?? -1);
});

test("a request's tokens do not depend on what runs beside it", async () => {
  const prompts = Array.from({ length: 6 }, (_, i) =>
    Array.from({ length: 3 + 5 * i }, (_, j) => (i * 31 + j * 7) % 256),
  );
  const bodies = prompts.map((prompt, i) => ({
    prompt,
    max_tokens: 12 + i,
    ignore_eos: true,
    ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 1.2, top_p: 0.9, seed: 40 + i, presence_penalty: 0.5 }),
  }));
  const alone: (readonly number[])[] = [];
  for (const body of bodies) alone.push(await completionIds(body));
  const together = await Promise.all(bodies.map(completionIds));
  expect(together).toEqual(alone);
  expect(alone.map((ids) => ids.length)).toEqual(bodies.map((body) => body.max_tokens));
});

test("logprobs of a greedy answer: each token is its own best alternative", async () => {
  const answer = await client.chat.completions.create({
    model: "any",
    messages: [{ role: "user", content: "Hi" }],
    max_tokens: 6,
    temperature: 0,
    logprobs: true,
    top_logprobs: 3,
  });
  const tokens = answer.choices[0]?.logprobs?.content ?? [];
  expect(tokens.length).toBeGreaterThan(0);
  for (const token of tokens) {
    expect(token.top_logprobs.length).toBe(3);
    expect(token.top_logprobs[0]?.token).toBe(token.token);
    expect(token.top_logprobs[0]?.logprob).toBeCloseTo(token.logprob, 5);
  }
});

test("a client that goes away frees its row at the next step", async () => {
  const abort = new AbortController();
  const stream = await client.chat.completions.create(
    { model: "any", messages: [{ role: "user", content: "Go" }], max_tokens: 1900, temperature: 1.9, stream: true },
    { signal: abort.signal },
  );
  for await (const _ of stream) break;
  abort.abort();
  const deadline = performance.now() + 5000;
  for (;;) {
    const { queue } = (await (await fetch(`${server.url}/health`)).json()) as { queue: { running: number } };
    if (queue.running === 0) break;
    if (performance.now() > deadline) throw new Error("the row still runs");
    await Bun.sleep(20);
  }
});

/** The message of a call that must fail; the client's promise is one of its own kind, which `rejects` does not know. */
async function failure(call: PromiseLike<unknown>): Promise<string> {
  try {
    await call;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  throw new Error("the call succeeded");
}

test("errors are OpenAI's", async () => {
  const bad = client.chat.completions.create({ model: "any", messages: [], max_tokens: 1 });
  expect(await failure(bad)).toContain("'messages' must be a non-empty list");
  const long = client.completions.create({ model: "any", prompt: Array.from({ length: 5000 }, () => 1) });
  expect(await failure(long)).toContain("prompt is too long: 5000 tokens");
});

test("a port in use is said at once, with exit code 1", async () => {
  const { port } = new URL(server.url);
  const child = Bun.spawn([EXECUTABLE, "serve", "--port", port, "--model", TINY_MODEL], {
    env: { MLX_DSPARK_CACHE: cache.path },
    stdout: "ignore",
    stderr: "pipe",
  });
  expect(await child.exited).toBe(1);
  expect(await new Response(child.stderr).text()).toContain(port);
});

test.each(["SIGINT", "SIGTERM"] as const)("%s ends the server cleanly while a stream runs", async (signal) => {
  const own = await serve(cache.path, ["--model", TINY_MODEL, "--drain-seconds", "0"]);
  await own.ready();
  const reply = await fetch(`${own.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: [1, 2, 3], max_tokens: 1900, ignore_eos: true, stream: true }),
  });
  const reader = reply.body?.getReader();
  await reader?.read();
  own.child.kill(signal);
  expect(await own.child.exited).toBe(0);
  expect(own.log()).toContain("shutting down");
});
