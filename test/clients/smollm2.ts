/**
 * The executable serving the model that is inside it, for real clients. It is small and greedy, hence the same everywhere;
 * the words below are ones that it answers shortly. It never learnt to call tools, but repeats a call that it is shown.
 */
import { type RunningServer, requireExecutable, serve } from "../e2e/executable.ts";
import { CLIENT_CACHE } from "./client.ts";

/** Answered in eight tokens, in any frame: clients put their own prompts before it. */
export const QUESTION = "What is the capital of France?";
export const ANSWER = "Paris";

/** Longer answers are cut: what does not stop by itself must not hold a test up. */
const ANSWER_TOKENS_MAX = 512;

export async function serveSmollm2(): Promise<RunningServer> {
  requireExecutable();
  const server = await serve(CLIENT_CACHE, [
    ...["--model", "smollm2-135m", "--max-batch", "4", "--max-tokens-cap", String(ANSWER_TOKENS_MAX)],
    // Its template knows no tools.
    ...["--tool-format", "hermes"],
  ]);
  await server.ready();
  return server;
}

/** A request for a call, which the model writes out. */
export function pleaseCall(name: string, args: Readonly<Record<string, unknown>>): string {
  const pairs = Object.entries(args).map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`);
  const call = `{"name": ${JSON.stringify(name)}, "arguments": {${pairs.join(", ")}}}`;
  return `Repeat this text exactly:\n<tool_call>\n${call}\n</tool_call>`;
}

/** Prints what is then asked of the model, so that the turn after the call ends, too. */
export const ECHO = "echo What is the capital of France";
