/** `GET /admin/integrations`: ready-made configurations of clients for this server (clients.md §7). Holds the key. */
import { type Static, Type as t } from "@sinclair/typebox";
import { claudeEnvironment } from "../clients/claude-environment.ts";
import { ANY_KEY, type ClientServer, KEY_VARIABLE, PROVIDER } from "../clients/client-server.ts";
import { CODEX_PROFILE_FILE, codexProfile } from "../clients/codex-provider.ts";
import { piProvider } from "../clients/pi-provider.ts";
import { invalidRequest } from "../errors.ts";
import { oneOf } from "../openapi/schemas.ts";

const label = t.String();
const byName = t.Record(t.String(), t.String());

const integrationSchema = t.Object(
  {
    id: oneOf("claude-code", "codex", "opencode", "pi", "openai-compatible"),
    name: t.String(),
    protocol: oneOf("anthropic", "openai-responses", "openai-chat"),
    summary: t.String(),
    setup: t.Array(
      t.Union([
        t.Object({ kind: t.Literal("command"), label, command: t.String() }),
        t.Object({ kind: t.Literal("env"), label, env: byName }),
        t.Object({ kind: t.Literal("file"), label, path: t.String(), content: t.String() }),
        t.Object({ kind: t.Literal("fields"), label, fields: byName }),
      ]),
    ),
    note: t.Optional(t.String()),
  },
  { $id: "Integration" },
);

export const integrationsSchema = t.Object(
  {
    base_url: t.String({ description: "As the client reached the server." }),
    model: t.String(),
    integrations: t.Array(integrationSchema),
  },
  { $id: "Integrations" },
);

type Integration = Static<typeof integrationSchema>;
type File = Extract<Integration["setup"][number], { kind: "file" }>;

/**
 * The server's address in the client's own words. The header is the client's, so only a plain name or address with an
 * optional port is taken; throws 400 for anything else.
 */
export function baseUrlOf(host: string | null): string {
  const plain = /^(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i;
  if (host === null || !plain.test(host)) throw invalidRequest(null, "the Host header must be host or host:port");
  return `http://${host}`;
}

/** `server.served.url`: as the client reached it. */
export function integrationsBody(server: ClientServer): Static<typeof integrationsSchema> {
  return {
    base_url: server.served.url,
    model: server.served.model,
    integrations: [claude(server), codex(server), openCode(server), pi(server), any(server)],
  };
}

function claude(server: ClientServer): Integration {
  const key = server.key === null ? "" : ` --api-key ${server.key}`;
  const command = `mlx-dspark claude --url ${server.served.url}${key}`;
  return {
    id: "claude-code",
    name: "Claude Code",
    protocol: "anthropic",
    summary: "Runs Claude Code on the local model, for one session and without a change to its settings.",
    setup: [
      { kind: "command", label: "Start it through mlx-dspark", command },
      {
        kind: "env",
        label: "Or set the environment yourself",
        env: claudeEnvironment(server, { allowTraffic: false }),
      },
    ],
    note: "mlx-dspark claude --print-env prints these lines for a shell.",
  };
}

function codex(server: ClientServer): Integration {
  return {
    id: "codex",
    name: "Codex",
    protocol: "openai-responses",
    summary: "A profile for Codex, which is a file of its own.",
    setup: [
      file(`~/.codex/${CODEX_PROFILE_FILE}`, codexProfile(server)),
      {
        kind: "command",
        label: "Run",
        command: `${KEY_VARIABLE}=${server.key ?? ANY_KEY} codex --profile ${PROVIDER}`,
      },
    ],
    note: "mlx-dspark launch codex runs it without a file.",
  };
}

function openCode({ served: { url, model, contextWindow, maxOutputTokens }, key }: ClientServer): Integration {
  const provider = {
    npm: "@ai-sdk/openai-compatible",
    name: PROVIDER,
    options: { baseURL: `${url}/v1`, apiKey: key ?? ANY_KEY },
    models: { [model]: { name: model, limit: { context: contextWindow, output: maxOutputTokens } } },
  };
  return {
    id: "opencode",
    name: "OpenCode",
    protocol: "openai-chat",
    summary: "A provider for OpenCode.",
    setup: [
      jsonFile("opencode.json", { $schema: "https://opencode.ai/config.json", provider: { [PROVIDER]: provider } }),
    ],
  };
}

function pi(server: ClientServer): Integration {
  const providers = { [PROVIDER]: piProvider(server, server.key ?? ANY_KEY) };
  return {
    id: "pi",
    name: "pi",
    protocol: "anthropic",
    summary: "A provider for pi.",
    setup: [
      jsonFile("~/.pi/agent/models.json", { providers }),
      { kind: "command", label: "Run", command: `pi --provider ${PROVIDER} --model ${server.served.model}` },
    ],
    note: "mlx-dspark launch pi runs it without a file.",
  };
}

function any({ served: { url, model }, key }: ClientServer): Integration {
  return {
    id: "openai-compatible",
    name: "Any OpenAI-compatible client",
    protocol: "openai-chat",
    summary: "The three things that such a client asks for.",
    setup: [
      {
        kind: "fields",
        label: "Connection",
        fields: { "Base URL": `${url}/v1`, "API key": key ?? ANY_KEY, Model: model },
      },
    ],
  };
}

function jsonFile(path: string, content: object): File {
  return file(path, `${JSON.stringify(content, null, 2)}\n`);
}

function file(path: string, content: string): File {
  return { kind: "file", label: `Write ${path}`, path, content };
}
