/** Our server around an engine that plays ticks; `bun server-ours.ts TOKENS` prints its port. */
import type { EngineClient, GenerateEvent } from "../../src/engine/client.ts";
import type { GenerateRequest } from "../../src/engine/protocol.ts";
import { startServer } from "../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { ByteText } from "../../test/server/byte-text.ts";
import { ScriptedEngine, writes } from "../../test/server/scripted-engine.ts";
import { TICK_MS, Ticker } from "./ticker.ts";

const SAMPLE: GenerateRequest = {
  ...{ id: "00000000", promptIds: [1], maxNewTokens: 1, eosIds: [], topLogprobs: null, priority: 0 },
  sampling: {
    ...{ temperature: 0, topP: 1, topK: 0, minP: 0, presencePenalty: 0, frequencyPenalty: 0 },
    ...{ repetitionPenalty: 1, logitBias: [], seed: "0" },
  },
};

const round = { source: "plain", drafted: 0, accepted: 0, cap: null, ms: TICK_MS } as const;
const end: GenerateEvent[] = [];
const ticker = new Ticker<GenerateEvent>(
  Number(process.argv[2]),
  (tick) => ({ type: "tokens", ids: [97 + (tick % 26)], logprobs: null, round: tick === 0 ? null : round }),
  () => end,
);
const scripted = new ScriptedEngine(() => writes(""));
/** The seed of a request says how many streams its burst has. */
const generate = (request: GenerateRequest) => ticker.join(Number(request.sampling.seed));
const engine: EngineClient = Object.assign(Object.create(scripted) as ScriptedEngine, { generate });
for await (const event of scripted.generate(SAMPLE)) if (event.type === "done") end.push(event);
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
