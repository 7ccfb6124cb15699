/** A stream as a response, on a socket: order, keep-alives in silence only, and who hears of the end. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { dataFrame, FrameTemplate } from "../../../src/server/http/sse.ts";
import { type SseOptions, sseResponse } from "../../../src/server/http/sse-response.ts";
import { until } from "../harness.ts";

interface Served extends Disposable {
  readonly url: string;
  gone: number;
  cuts: number;
}

function serve(produce: (write: (text: string) => void) => Promise<void>, options: Partial<SseOptions> = {}): Served {
  const counts = { gone: 0, cuts: 0 };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) =>
      sseResponse(produce, {
        signal: request.signal,
        keepAliveMs: 0,
        keepAlive: () => ": keepalive\n\n",
        stallMs: 1000,
        cut: () => {
          counts.cuts += 1;
        },
        gone: () => {
          counts.gone += 1;
        },
        ...options,
      }),
  });
  return Object.assign(counts, { url: server.url.href, [Symbol.dispose]: () => void server.stop(true) });
}

describe("a stream", () => {
  test("arrives in order, its first frame before the second is written, with the headers of one", async () => {
    const next = Promise.withResolvers<void>();
    using served = serve(async (write) => {
      write("a\n\n");
      await next.promise;
      write("b\n\n");
      write("c\n\n");
    });
    const reply = await fetch(served.url);
    expect(reply.headers.get("content-type")).toBe("text/event-stream");
    expect(reply.headers.get("x-accel-buffering")).toBe("no");
    const reader = reply.body?.getReader();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe("a\n\n");
    next.resolve();
    let rest = "";
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) {
      rest += new TextDecoder().decode(part.value);
    }
    expect(rest).toBe("b\n\nc\n\n");
    expect(served.cuts).toBe(0);
  });

  test("silence is filled, a busy stream is not", async () => {
    using silent = serve(
      async (write) => {
        write("a\n\n");
        await Bun.sleep(130);
        write("b\n\n");
      },
      { keepAliveMs: 40 },
    );
    const text = await (await fetch(silent.url)).text();
    expect(text).toMatch(/^a\n\n(?:: keepalive\n\n){1,3}b\n\n$/);
    using busy = serve(
      async (write) => {
        for (let i = 0; i < 30; i++) {
          write("x");
          await Bun.sleep(5);
        }
      },
      { keepAliveMs: 2000 },
    );
    expect(await (await fetch(busy.url)).text()).toBe("x".repeat(30));
  });

  test("a client that goes is told, and what is written after that goes nowhere", async () => {
    let written = 0;
    let over = false;
    using served = serve(async (write) => {
      while (served.gone === 0) {
        write("x\n\n");
        written += 1;
        await Bun.sleep(2);
      }
      write("never\n\n");
      over = true;
    });
    const client = new AbortController();
    const reply = await fetch(served.url, { signal: client.signal });
    const reader = reply.body?.getReader();
    await reader?.read();
    client.abort();
    await until(() => over);
    expect(written).toBeGreaterThan(0);
  });
});

test("a frame is one line for everybody, whatever its text holds", () => {
  const text = "a\nb\rc\u0085d\u2028e\u2029f";
  const frame = dataFrame({ text }).toSSE();
  expect(frame).toMatch(/^data: [^\n\r\u0085\u2028\u2029]*\n\n$/);
  expect(JSON.parse(frame.slice("data: ".length))).toEqual({ text });
});

test("a template filled is the frame of the object, whatever the texts around and in it", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (model, text) => {
      const make = (content: string) => ({ id: "x", model, choices: [{ delta: { content }, end: null }] });
      expect(new FrameTemplate(make).fill(text).toSSE()).toBe(dataFrame(make(text)).toSSE());
    }),
  );
});
