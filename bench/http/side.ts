/**
 * One side of the comparison: a server in a process of its own, and here its clients, on bare sockets so that they cost
 * little. A line "N" on standard input runs a burst of N streams and answers with the delays from tick to arrival.
 *
 * Usage: bun side.ts SERVER TOKENS
 */
import { quantile } from "../support/statistics.ts";
import { monotonicNanoseconds } from "./monotonic.ts";

const [server = "", tokens = ""] = process.argv.slice(2);
const child = Bun.spawn([process.execPath, server, tokens], { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
const replies = linesOf(child.stdout);
const port = Number((await replies.next()).value);

for await (const line of console) if (line !== "") console.log(JSON.stringify(await burst(Number(line))));
child.stdin.end();
await child.exited;

async function burst(streams: number): Promise<Readonly<Record<string, number>>> {
  const arrivals = await Promise.all(Array.from({ length: streams }, () => stream(streams)));
  child.stdin.write("times\n");
  child.stdin.flush();
  const ticks = JSON.parse((await replies.next()).value ?? "[]") as number[];
  const delays = arrivals.flatMap((times) => times.map((time, i) => time - (ticks[i] ?? Number.NaN)));
  if (delays.length !== streams * Number(tokens) || delays.some(Number.isNaN)) {
    throw new Error(`${server}: ${delays.length} tokens arrived, ${streams * Number(tokens)} were sent`);
  }
  // The first ticks meet code that has not been compiled yet, in the server as here.
  return { p50_ns: quantile(delays, 0.5), p99_ns: quantile(delays, 0.99) };
}

/** When each token of one answer arrived. */
async function stream(streams: number): Promise<number[]> {
  const body = JSON.stringify({
    ...{ messages: [{ role: "user", content: "hi" }], stream: true, seed: streams, temperature: 1 },
    max_tokens: Number(tokens),
  });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n`;
  const arrivals: number[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const mark = Buffer.from('"delta":{"content":"');
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      data: (_socket, data) => {
        const now = monotonicNanoseconds();
        // A role frame has its mark in another place: it is no token.
        for (let at = data.indexOf(mark); at >= 0; at = data.indexOf(mark, at + 1)) arrivals.push(now);
        if (arrivals.length >= Number(tokens)) resolve();
      },
      close: () => resolve(),
      error: (_socket, error) => reject(error),
    },
  });
  socket.write(`${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await promise;
  socket.terminate();
  return arrivals;
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of stream) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
}
