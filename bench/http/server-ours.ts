/** Our server around an engine that plays ticks; `bun server-ours.ts TOKENS` prints its port. */
import type { EngineClient, GenerateEvent } from "../../src/engine/client.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { startServer } from "../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { ByteText } from "../../test/server/byte-text.ts";
import { ScriptedEngine, writes } from "../../test/server/scripted-engine.ts";
import { Ticker } from "./ticker.ts";

const ticker = new Ticker(Number(process.argv[2]));
const inner = new ScriptedEngine(() => writes(""));

/** The seed of a request says how many streams its burst has. */
async function* ticking(request: GenerateRequest): AsyncIterableIterator<GenerateEvent> {
  const round = { source: "plain", drafted: 0, accepted: 0, cap: null, ms: 10 } as const;
  for await (const tick of ticker.join(Number(request.sampling.seed))) {
    yield { type: "tokens", ids: [97 + (tick % 26)], logprobs: null, round: tick === 0 ? null : round };
  }
  for await (const event of inner.generate(request)) if (event.type === "done") yield event;
}

const engine: EngineClient = Object.assign(Object.create(inner) as ScriptedEngine, { generate: ticking });
const text = new ByteText();
const server = startServer({
  engine,
  text: () => text,
  options: { ...DEFAULT_SERVER_OPTIONS, maxBatch: 64 },
  host: "127.0.0.1",
  port: 0,
});
console.log(server.port);
for await (const _ of console) console.log(JSON.stringify(ticker.times));
await server.stop(0);
