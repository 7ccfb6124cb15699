/** A loop around `Bun.serve` that writes the same bytes at the same ticks, and nothing else. */
import { Ticker } from "./ticker.ts";

const ticker = new Ticker(
  Number(process.argv[2]),
  (tick) => tick,
  () => [],
);

/** As long as the statistics that an answer ends with. */
const REPORT = "x".repeat(600);

function frame(delta: object, end: object = { finish_reason: null }): string {
  const head = { id: `chatcmpl-${"0".repeat(32)}`, object: "chat.completion.chunk", created: 1_795_982_827 };
  const choice = { index: 0, delta, logprobs: null, ...end };
  return `data: ${JSON.stringify({ ...head, model: "scripted-1b", system_fingerprint: null, choices: [choice] })}\n\n`;
}

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: async (request) => {
    const { seed } = (await request.json()) as { seed: number };
    const body = new ReadableStream({
      type: "direct",
      pull: async (controller) => {
        controller.write(frame({ role: "assistant", content: "" }));
        await controller.flush();
        for await (const tick of ticker.join(seed)) {
          controller.write(frame({ content: String.fromCharCode(97 + (tick % 26)) }));
          controller.flush();
        }
        controller.write(frame({}, { finish_reason: "stop", x_mlx_dspark: REPORT }));
        controller.flush();
        controller.write("data: [DONE]\n\n");
        controller.flush();
        controller.close();
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  },
});
console.log(server.port);
for await (const _ of console) console.log(JSON.stringify(ticker.times));
await server.stop(true);
