/**
 * What `/openapi/json` promises, as a judge of replies. Objects are closed here, so that a field which the server writes and
 * the document does not know is found, too.
 */
import { Ajv2020 } from "ajv/dist/2020.js";

/** A schema as JSON. */
type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type JsonObject = { readonly [key: string]: Json };

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly schema: JsonObject }[];
  readonly requestBody?: { readonly content: Contents };
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content: Contents }>>;
}
type Contents = Readonly<Record<string, { readonly schema: JsonObject }>>;

export interface OpenApi {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, JsonObject>> };
}

export async function openApiOf(url: string): Promise<OpenApi> {
  return (await (await fetch(`${url}/openapi/json`)).json()) as OpenApi;
}

/** Name of the whole document to the validator. */
const ROOT = "api";

export class Published {
  /** What has been judged, as "method path status type". */
  readonly seen = new Set<string>();
  private readonly ajv: Ajv2020;

  constructor(readonly document: OpenApi) {
    this.ajv = new Ajv2020({ strict: false, allErrors: true });
    this.ajv.addSchema({ ...(closed(document as unknown as Json) as object), $id: ROOT });
  }

  /** Everything that the document promises, named as in `seen`. */
  get promised(): string[] {
    return Object.entries(this.document.paths).flatMap(([path, operations]) =>
      Object.entries(operations).flatMap(([method, { responses }]) =>
        Object.entries(responses).flatMap(([status, { content }]) =>
          Object.keys(content).map((type) => `${method} ${path} ${status} ${type}`),
        ),
      ),
    );
  }

  /** The path in the document that a request's path and method stand for; null: it has none. */
  operationOf(method: string, requested: string): string | null {
    const bare = requested.replace(/\?.*$/, "").replace(/(?<=.)\/$/, "");
    const names = (path: string) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`);
    const { paths } = this.document;
    const found = Object.keys(paths).find((path) => names(path).test(bare) || names(path).test(`/v1${bare}`));
    return found !== undefined && paths[found]?.[method.toLowerCase()] !== undefined ? found : null;
  }

  /** What is wrong with a reply to `method path`, `path` as in the document. Empty: nothing. */
  faults(verb: string, path: string, reply: Response, text: string): string[] {
    const method = verb.toLowerCase();
    const status = reply.status === 200 ? "200" : `${Math.floor(reply.status / 100)}XX`;
    const type = (reply.headers.get("content-type") ?? "").replace(/;.*$/, "");
    const place = ["paths", path, method, "responses", status, "content", type, "schema"];
    if (this.at(place) === undefined) return [`${method} ${path}: ${status} as ${type} is not in the document`];
    this.seen.add(`${method} ${path} ${status} ${type}`);
    if (type === "application/json") return this.check(place, JSON.parse(text));
    if (type === "text/event-stream") return frames(text).flatMap((frame) => this.frameFaults(place, frame));
    return this.check(place, text);
  }

  private frameFaults(place: readonly string[], { name, data }: Frame): string[] {
    if (data === "[DONE]") return [];
    const value: unknown = JSON.parse(data);
    // Where the data does not say its type, the document has a schema for each name.
    const named = name === null ? undefined : this.at([...place, "x-events", name]);
    const faults = this.check(named === undefined ? place : [...place, "x-events", name ?? ""], value);
    const isTyped = typeof value === "object" && value !== null && "type" in value;
    if (named === undefined && name !== null && isTyped && value.type !== name) {
      return [...faults, `an event ${name} of the type ${String(value.type)}`];
    }
    return faults;
  }

  private check(place: readonly string[], value: unknown): string[] {
    const pointer = place.map((part) => part.replaceAll("~", "~0").replaceAll("/", "~1")).map(encodeURIComponent);
    const validate = this.ajv.getSchema(`${ROOT}#/${pointer.join("/")}`);
    if (validate === undefined) return [`no schema at ${place.join(" ")}`];
    if (validate(value) === true) return [];
    return [`${place.slice(1, 6).join(" ")}: ${this.ajv.errorsText(validate.errors)} in ${JSON.stringify(value)}`];
  }

  private at(place: readonly string[]): Json | undefined {
    let current: Json | undefined = this.document as unknown as Json;
    for (const key of place) {
      if (typeof current !== "object" || current === null || Array.isArray(current)) return undefined;
      current = (current as JsonObject)[key];
    }
    return current;
  }
}

interface Frame {
  readonly name: string | null;
  readonly data: string;
}

function frames(text: string): Frame[] {
  return text.split("\n\n").flatMap((frame) => {
    const data = /^data: (.*)$/m.exec(frame)?.[1];
    return data === undefined ? [] : [{ name: /^event: (.*)$/m.exec(frame)?.[1] ?? null, data }];
  });
}

/** A copy in which an object has no other properties than those that are named, unless it says that it may. */
function closed(value: Json): Json {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, closed(inner)]));
  const isObject = copy.type === "object" && copy.properties !== undefined;
  return isObject ? { additionalProperties: false, ...copy } : copy;
}
