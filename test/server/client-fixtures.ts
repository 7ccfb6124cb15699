/** Recorded requests of real clients (`test/data/clients/`), their fillers expanded; more where the shared folder is. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Type as t } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";

const OWN = join(import.meta.dir, "../data/clients");
const SHARED = join(import.meta.dir, "../../../shared/fixtures/clients");

const fixtureSchema = t.Object({
  client: t.String(),
  scenario: t.String(),
  request: t.Object({
    method: t.String(),
    path: t.String(),
    headers: t.Record(t.String(), t.String()),
    body: t.Record(t.String(), t.Unknown()),
    raw_body_chars: t.Number(),
  }),
});

export interface ClientFixture {
  /** The file's name without its ending. */
  readonly name: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
  /** Size of the JSON that the client sent. */
  readonly rawBodyChars: number;
}

/** All fixtures whose path, without `/v1` and query, is one of `routes`. */
export function clientFixtures(...routes: readonly string[]): ClientFixture[] {
  const files = new Map<string, string>();
  for (const folder of [SHARED, OWN]) {
    if (!existsSync(folder)) continue;
    for (const file of readdirSync(folder)) if (file.endsWith(".json")) files.set(file, join(folder, file));
  }
  return [...files].sort().flatMap(([file, path]) => {
    const { request } = Value.Parse(fixtureSchema, JSON.parse(expandFillers(readFileSync(path, "utf8"))));
    if (!routes.includes(request.path.replace(/^\/v1/, "").replace(/\?.*$/, ""))) return [];
    const { headers, body, raw_body_chars: rawBodyChars } = request;
    return [{ name: file.replace(/\.json$/, ""), path: request.path, headers, body, rawBodyChars }];
  });
}

/** `[[filler:NAME:N]]` → N characters of words, the same for every marker of that name. */
export function expandFillers(text: string): string {
  return text.replace(/\[\[filler:([^:\]]+):(\d+)\]\]/g, (_, name: string, length: string) => {
    const words = `${name.replaceAll("-", " ")} of the recorded request `;
    return words.repeat(Math.ceil(Number(length) / words.length)).slice(0, Number(length));
  });
}
