/** What `serve` says on stderr: where it listens, at once; what it serves, when the model is there. */
import type { ModelInfo } from "../engine/protocol.ts";
import type { RunningServer } from "../server/listen.ts";
import type { ServerOptions } from "../server/options.ts";
import { USUAL_URL } from "./clients/server-for-client.ts";
import { size } from "./progress.ts";

export function listeningLines(server: RunningServer, options: ServerOptions, model: string | null): string[] {
  const auth = options.apiKey === null ? "no key needed" : "clients need the API key";
  return [
    `mlx-dspark ${options.version} listening on ${server.url}/v1 (${auth}); state: ${server.url}/health`,
    model === null ? "no model: started with --no-model" : `loading ${model} …`,
  ];
}

/** The usual address is found without being named. */
function claudeUrl({ url }: RunningServer): string {
  return url === USUAL_URL ? "" : ` --url ${url}`;
}

function drafterText({ mode, drafter, drafting }: ModelInfo): string {
  if (drafting === null) return "none";
  if (drafter === null) return `none: ${mode} drafts of up to ${drafting.maxDraft} tokens, longer on long matches`;
  const cap = drafting.maxDraft === "auto" ? "max-draft auto" : `max-draft ${drafting.maxDraft}`;
  const lookup = drafting.lookupDrafts ? "lookup drafts on" : "lookup drafts off";
  const parts = [`${drafter} (${size(drafting.drafterBytes)})`, cap, lookup];
  if (drafting.drafterWindow !== null) parts.push(`window ${drafting.drafterWindow}`);
  if (drafting.confidenceThreshold > 0) parts.push(`confidence ${drafting.confidenceThreshold}`);
  return parts.join(", ");
}

export function readyLines(model: ModelInfo, server: RunningServer, options: ServerOptions): string[] {
  const { temperature, topP, topK } = { ...model.samplingDefaults, ...options.samplingDefaults };
  const kv = options.kvBits === 0 ? "activation type" : `${options.kvBits} bits`;
  const key = options.apiKey === null ? "" : " -H 'Authorization: Bearer <key>'";
  const body = '{"messages":[{"role":"user","content":"Hello"}]}';
  const rows: readonly (readonly [string, string])[] = [
    ["mode", model.mode],
    ["model", model.quantization === null ? model.id : `${model.id} (${model.quantization})`],
    ["target", model.dir],
    ["drafter", drafterText(model)],
    ["weights", `${size(model.weightBytes)}, KV ${size(model.kvBytesPerToken)} a token (${kv})`],
    ["backend", model.backend],
    ["context", `${model.contextWindow} tokens, answers up to ${Math.min(options.maxTokensCap, model.contextWindow)}`],
    ["batching", `${options.maxBatch} at a time, ${options.maxQueue} waiting`],
    ["sampling", `temperature ${temperature ?? 0}, top_p ${topP ?? 1}, top_k ${topK ?? 0}`],
    ["url", `${server.url}/v1`],
    ["claude", `mlx-dspark claude${claudeUrl(server)}, or ANTHROPIC_BASE_URL=${server.url} (no /v1)`],
    ["try", `curl ${server.url}/v1/chat/completions${key} -d '${body}'`],
  ];
  return ["ready", ...rows.map(([name, value]) => `  ${name.padEnd(9)} ${value}`)];
}
