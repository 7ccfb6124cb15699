/** `GET /admin/integrations`: ready-made configurations of clients for this server (clients.md §7). Holds the key. */
import { invalidRequest } from "../errors.ts";

export interface IntegrationFacts {
  /** `http://host:port` as the client reached the server. */
  readonly baseUrl: string;
  readonly model: string;
  readonly contextWindow: number;
  readonly maxOutputTokens: number;
  /** Null: the server asks for none. */
  readonly apiKey: string | null;
}

/** What a client that insists on a key is given when none is asked for. */
const ANY_KEY = "mlx-dspark";
const PI_OUTPUT_MAX = 8192;

/**
 * The server's address in the client's own words. The header is the client's, so only a plain name or address with an
 * optional port is taken; throws 400 for anything else.
 */
export function baseUrlOf(host: string | null): string {
  const plain = /^(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i;
  if (host === null || !plain.test(host)) throw invalidRequest(null, "the Host header must be host or host:port");
  return `http://${host}`;
}

export function integrationsBody(facts: IntegrationFacts) {
  const { baseUrl, model } = facts;
  return {
    base_url: baseUrl,
    model,
    integrations: [claude(facts), codex(facts), openCode(facts), pi(facts), any(facts)],
  };
}

function claude({ baseUrl, apiKey, model, contextWindow }: IntegrationFacts) {
  const key = apiKey === null ? "" : ` --api-key ${apiKey}`;
  return {
    id: "claude-code",
    name: "Claude Code",
    protocol: "anthropic",
    summary: "Runs Claude Code on the local model, for one session and without a change to its settings.",
    setup: [
      { kind: "command", label: "Start it through mlx-dspark", command: `mlx-dspark claude --url ${baseUrl}${key}` },
      {
        kind: "env",
        label: "Or set the environment yourself",
        env: {
          ANTHROPIC_BASE_URL: baseUrl,
          ANTHROPIC_AUTH_TOKEN: apiKey ?? ANY_KEY,
          ANTHROPIC_MODEL: model,
          ANTHROPIC_SMALL_FAST_MODEL: model,
          CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(contextWindow),
        },
      },
    ],
    note: "mlx-dspark claude --print-env prints all variables.",
  };
}

function codex({ baseUrl, apiKey, model, contextWindow }: IntegrationFacts) {
  const lines = [
    "[model_providers.mlx-dspark]",
    'name = "mlx-dspark"',
    `base_url = "${baseUrl}/v1"`,
    'wire_api = "responses"',
    'env_key = "MLX_DSPARK_KEY"',
    "",
    "[profiles.mlx-dspark]",
    'model_provider = "mlx-dspark"',
    `model = ${JSON.stringify(model)}`,
    `model_context_window = ${contextWindow}`,
  ];
  return {
    id: "codex",
    name: "Codex",
    protocol: "openai-responses",
    summary: "A provider and a profile for Codex.",
    setup: [
      {
        kind: "file",
        label: "Add to the configuration",
        path: "~/.codex/config.toml",
        content: `${lines.join("\n")}\n`,
      },
      {
        kind: "command",
        label: "Run",
        command: `MLX_DSPARK_KEY=${apiKey ?? ANY_KEY} codex --profile mlx-dspark`,
      },
    ],
  };
}

function openCode({ baseUrl, apiKey, model, contextWindow, maxOutputTokens }: IntegrationFacts) {
  const limit = { context: contextWindow, output: maxOutputTokens };
  const provider = {
    npm: "@ai-sdk/openai-compatible",
    name: "mlx-dspark",
    options: { baseURL: `${baseUrl}/v1`, apiKey: apiKey ?? ANY_KEY },
    models: { [model]: { name: model, limit } },
  };
  return {
    id: "opencode",
    name: "OpenCode",
    protocol: "openai-chat",
    summary: "A provider for OpenCode.",
    setup: [
      jsonFile("opencode.json", { $schema: "https://opencode.ai/config.json", provider: { "mlx-dspark": provider } }),
    ],
  };
}

function pi({ baseUrl, apiKey, model, contextWindow }: IntegrationFacts) {
  // A quarter of the window: an answer that may take it all leaves no room for the prompt.
  const maxTokens = Math.max(1, Math.min(PI_OUTPUT_MAX, Math.floor(contextWindow / 4)));
  const provider = {
    baseUrl,
    api: "anthropic-messages",
    apiKey: apiKey ?? ANY_KEY,
    models: [{ id: model, contextWindow, maxTokens }],
  };
  return {
    id: "pi",
    name: "pi",
    protocol: "anthropic",
    summary: "A provider for pi.",
    setup: [
      jsonFile("~/.pi/agent/models.json", { providers: { "mlx-dspark": provider } }),
      { kind: "command", label: "Run", command: `pi --provider mlx-dspark --model ${model}` },
    ],
  };
}

function any({ baseUrl, apiKey, model }: IntegrationFacts) {
  return {
    id: "openai-compatible",
    name: "Any OpenAI-compatible client",
    protocol: "openai-chat",
    summary: "The three things that such a client asks for.",
    setup: [
      {
        kind: "fields",
        label: "Connection",
        fields: { "Base URL": `${baseUrl}/v1`, "API key": apiKey ?? ANY_KEY, Model: model },
      },
    ],
  };
}

function jsonFile(path: string, content: object) {
  return { kind: "file", label: `Write ${path}`, path, content: `${JSON.stringify(content, null, 2)}\n` };
}
