/**
 * One burst: greedy decoding of a folder's model by the engine's own scheduler, its messages posted to a port as in the
 * engine thread; then the same again with the time inside MLX's evaluation counted.
 * Usage: host-overhead-ours.ts <model folder> <prompt tokens> <steps>
 */
import { MessageChannel, receiveMessageOnPort } from "node:worker_threads";
import { loadModel } from "../../src/engine/load-model.ts";
import { type FromEngine, type LoadSpec, NO_SPECULATION } from "../../src/engine/protocol.ts";
import { Scheduler } from "../../src/engine/scheduler.ts";
import { native } from "../../src/mlx/native.ts";
import { openTestMlx } from "../../test/support/native.ts";
import { GREEDY } from "../../test/support/sampling.ts";
import { answerBursts } from "../support/answer.ts";
import { type Times, threadCpuNanoseconds, timed } from "../support/clock.ts";

const [model = "", promptTokens = "8", stepCount = "500"] = process.argv.slice(2);
const steps = Number(stepCount);
const prompt = Array.from({ length: Number(promptTokens) }, (_, i) => (7 * i + 3) % 200);

openTestMlx();
const spec: LoadSpec = {
  model,
  offline: true,
  kvBits: 0,
  contextWindow: null,
  threads: null,
  speculation: NO_SPECULATION,
  maxBatch: 1,
  maxQueue: 1,
};
const ready = await loadModel(spec, {
  onProgress: () => undefined,
  signal: new AbortController().signal,
  embedded: () => null,
});
const { port1: engineEnd, port2: clientEnd } = new MessageChannel();
const scheduler = new Scheduler(ready, spec, (message) => engineEnd.postMessage(message));

/** A turn as the engine thread makes it: look for messages, then work. */
function turn(): void {
  while (receiveMessageOnPort(engineEnd) !== undefined);
  scheduler.turn();
}

/** Times of `steps` steps; the first token, which the prompt gives, comes before. */
function generate(): { times: Times; ids: number[] } {
  scheduler.submit({
    id: "00000000",
    promptIds: prompt,
    maxNewTokens: steps + 1,
    sampling: GREEDY,
    eosIds: [],
    topLogprobs: null,
    priority: 0,
  });
  turn();
  insideWall = 0;
  insideThread = 0;
  const times = timed(steps, () => {
    while (scheduler.busy) turn();
  });
  return { times, ids: received() };
}

function received(): number[] {
  const ids: number[] = [];
  for (let next = receiveMessageOnPort(clientEnd); next !== undefined; next = receiveMessageOnPort(clientEnd)) {
    const message = next.message as FromEngine;
    if (message.type === "failed") throw new Error(message.error.message);
    if (message.type === "tokens") for (const event of message.batch) ids.push(...event.ids);
  }
  return ids;
}

let insideWall = 0;
let insideThread = 0;

/** The call, with the time in it added to `insideWall` and `insideThread`. */
function counted<A extends unknown[]>(call: (...values: A) => number): (...values: A) => number {
  return (...values) => {
    const [wall, thread] = [Bun.nanoseconds(), threadCpuNanoseconds()];
    const status = call(...values);
    insideThread += threadCpuNanoseconds() - thread;
    insideWall += Bun.nanoseconds() - wall;
    return status;
  };
}

const plain = {
  dspark_async_eval: native.dspark_async_eval,
  dspark_eval: native.dspark_eval,
  mlx_array_eval: native.mlx_array_eval,
};
const withCounting = {
  dspark_async_eval: counted(plain.dspark_async_eval),
  dspark_eval: counted(plain.dspark_eval),
  mlx_array_eval: counted(plain.mlx_array_eval),
};

await answerBursts(() => {
  const { times, ids } = generate();
  Object.assign(native, withCounting);
  const split = generate();
  Object.assign(native, plain);
  return {
    ...times,
    outside_wall_ns: split.times.wall_ns - insideWall / steps,
    outside_thread_ns: split.times.thread_ns - insideThread / steps,
    checksum: ids.reduce((sum, id, i) => sum + id * i, 0),
  };
});
