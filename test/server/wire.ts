/** Events as the pipeline gives them, for tests of what a dialect makes of them. */
import type { ChoiceEndReason, ChoiceEvent, ChoiceResult } from "../../src/server/generation/events.ts";
import { ChoiceCollector } from "../../src/server/generation/events.ts";
import { type GenerationJob, prepareJob } from "../../src/server/generation/job.ts";
import type { GenerationRequest } from "../../src/server/generation/request.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { ByteText } from "./byte-text.ts";
import { SCRIPTED_MODEL, statsOf } from "./scripted-engine.ts";

/** The job of a request to the scripted model. */
export function jobOf(request: GenerationRequest): Promise<GenerationJob> {
  const signal = new AbortController().signal;
  return prepareJob(request, { model: SCRIPTED_MODEL, text: new ByteText(), options: DEFAULT_SERVER_OPTIONS, signal });
}

export type Said =
  | { readonly thinks: string }
  | { readonly says: string }
  | { readonly calls: readonly [name: string, args: string] };

/** Events of choice 0, a token a character. */
export function eventsOf(job: GenerationJob, said: readonly Said[], reason: ChoiceEndReason): ChoiceEvent[] {
  const request = job.rows[0]?.request;
  if (request === undefined) throw new Error("a job without rows");
  let calls = 0;
  const events = said.map((one): ChoiceEvent => {
    if ("thinks" in one) return { type: "reasoning", choice: 0, text: one.thinks, tokens: [] };
    if ("says" in one) return { type: "text", choice: 0, text: one.says, tokens: [] };
    const [name, args] = one.calls;
    calls += 1;
    return { type: "call", choice: 0, call: { index: calls - 1, name, arguments: args }, tokens: [] };
  });
  const counts = { completionTokens: 50, reasoningTokens: 20 };
  const end = { stopString: null, tokens: [], ...counts, stats: statsOf(request, 50) };
  return [...events, { type: "end", choice: 0, reason, ...end }];
}

export function resultsOf(events: readonly ChoiceEvent[]): ChoiceResult[] {
  const collector = new ChoiceCollector();
  for (const event of events) collector.push(event);
  return collector.results();
}
