/**
 * The one function through which every request of this project to a hub goes. It keeps three promises: nothing is
 * sent when offline, the token is sent to the endpoint's own origin and nowhere else, and no wait is unbounded
 * (silence ends a request). Redirects are followed by hand for that, at most five, never from https down to http.
 */
import { HubError, TransientFault } from "./errors.ts";

/** Hops from the asked address to the bytes; the hub itself needs two (renamed repository, then download host). */
const MAX_HOPS = 5;

export interface HttpTuning {
  /** Until the reply's head, for a host that has not answered yet: long for a handshake, short for a dead host. */
  readonly connectMs: number;
  /** Silence that ends a request, afterwards. */
  readonly idleMs: number;
}

export const HTTP_TUNING: HttpTuning = { connectMs: 10_000, idleMs: 30_000 };

export interface HttpSettings {
  readonly endpoint: string;
  readonly token: string | null;
  readonly offline: boolean;
  readonly userAgent: string;
}

export interface HttpRequest {
  readonly method: "GET" | "HEAD" | "POST";
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal | undefined;
  /** "own": stop at a redirect that leaves the endpoint and return it, so that the caller sees where it leads. */
  readonly redirects?: "all" | "own";
  /** Limit for the reply's head instead of the tuned ones. */
  readonly headMs?: number;
}

export interface HttpReply {
  readonly status: number;
  readonly headers: Headers;
  /** Address that gave this reply, after redirects. */
  readonly url: string;
  /** The body in pieces. Ends the request when left early; throws `TransientFault` on resets and silence. */
  chunks(): AsyncGenerator<Uint8Array, void, void>;
  /** The whole body as text, at most `limit` bytes. */
  text(limit: number): Promise<string>;
  /** Gives the connection back without reading on. */
  discard(): void;
}

export class HubHttp {
  readonly #settings: HttpSettings;
  readonly #tuning: HttpTuning;
  readonly #origin: string;
  readonly #answered = new Set<string>();

  constructor(settings: HttpSettings, tuning: HttpTuning = HTTP_TUNING) {
    this.#settings = settings;
    this.#tuning = tuning;
    this.#origin = new URL(settings.endpoint).origin;
  }

  /**
   * Sends one request and follows its redirects. Any status is a reply. Throws `HubError` "offline" before any socket,
   * "unreachable" for a host that was never reached, `TransientFault` for what may pass, and the signal's reason.
   */
  async request(request: HttpRequest): Promise<HttpReply> {
    if (this.#settings.offline) {
      throw new HubError("offline", `offline (--offline or HF_HUB_OFFLINE): ${this.#settings.endpoint} was not asked`);
    }
    let url = new URL(request.url);
    for (let hop = 0; hop <= MAX_HOPS; hop++) {
      this.#checkProtocol(url);
      const reply = await this.#send(request, url);
      const target = redirectTarget(reply, url);
      if (target === null || (request.redirects === "own" && target.origin !== this.#origin)) return reply;
      reply.discard();
      url = target;
    }
    throw new HubError("server", `${url.host} redirects in circles (more than ${MAX_HOPS} times)`);
  }

  async #send(request: HttpRequest, url: URL): Promise<HttpReply> {
    const headers = new Headers(request.headers);
    headers.set("user-agent", this.#settings.userAgent);
    if (request.method === "GET") headers.set("accept-encoding", "identity");
    if (this.#settings.token !== null && url.origin === this.#origin) {
      headers.set("authorization", `Bearer ${this.#settings.token}`);
    }
    const watch = new Watch(url.host, request.signal);
    const known = this.#answered.has(url.host);
    watch.arm(request.headMs ?? (known ? this.#tuning.idleMs : this.#tuning.connectMs));
    try {
      const init: BunFetchRequestInit = { method: request.method, headers, redirect: "manual", signal: watch.signal };
      if (request.body !== undefined) init.body = request.body;
      const response = await fetch(url, init);
      this.#answered.add(url.host);
      return new Reply(response, url, watch, this.#tuning.idleMs);
    } catch (error) {
      watch.end();
      throw this.#named(error, url, request.signal, known);
    }
  }

  #checkProtocol(url: URL): void {
    const secure = this.#settings.endpoint.startsWith("https:");
    if (url.protocol === "https:" || (url.protocol === "http:" && !secure)) return;
    throw new HubError("server", `${this.#settings.endpoint} leads to ${url.protocol}//${url.host}: refused`);
  }

  #named(error: unknown, url: URL, signal: AbortSignal | undefined, known: boolean): unknown {
    if (signal?.aborted) return signal.reason;
    if (error instanceof TransientFault && known) return error;
    const code = error instanceof TransientFault ? "no answer" : errorCode(error);
    const final = new HubError(
      "unreachable",
      `cannot reach ${url.host} (${code}). Check the connection and HF_ENDPOINT (now ${this.#settings.endpoint}), ` +
        "or use --offline with a model that is on this machine",
    );
    // A host that has answered in this process is worth waiting for; one that never did is a wrong name or no network.
    const never = !known && /^(ENOTFOUND|EAI_|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH)/.test(code);
    return never || isTlsCode(code) ? final : new TransientFault(final);
  }
}

/** Ends a request after silence or when the caller's signal says so. */
class Watch {
  readonly #controller = new AbortController();
  readonly #host: string;
  readonly #outer: AbortSignal | undefined;
  readonly #follow = () => this.#controller.abort(this.#outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(host: string, outer: AbortSignal | undefined) {
    this.#host = host;
    this.#outer = outer;
    if (outer?.aborted) this.#follow();
    outer?.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  arm(ms: number): void {
    clearTimeout(this.#timer);
    const silence = new HubError("unreachable", `${this.#host} was silent for ${ms / 1000} s`);
    this.#timer = setTimeout(() => this.#controller.abort(new TransientFault(silence)), ms);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#follow);
  }

  close(): void {
    this.end();
    this.#controller.abort(new HubError("cancelled", "the rest of the reply is not needed"));
  }

  /** What a failed read really means: the caller's reason, the silence, or the fault of the connection itself. */
  named(error: unknown): unknown {
    if (this.#outer?.aborted) return this.#outer.reason;
    if (this.signal.aborted) return this.signal.reason;
    return new TransientFault(
      new HubError("unreachable", `the connection to ${this.#host} broke (${errorCode(error)})`),
    );
  }
}

class Reply implements HttpReply {
  readonly status: number;
  readonly headers: Headers;
  readonly url: string;
  readonly #response: Response;
  readonly #watch: Watch;
  readonly #idleMs: number;

  constructor(response: Response, url: URL, watch: Watch, idleMs: number) {
    this.status = response.status;
    this.headers = response.headers;
    this.url = url.href;
    this.#response = response;
    this.#watch = watch;
    this.#idleMs = idleMs;
    if (response.body === null) watch.end();
    else watch.arm(idleMs);
  }

  async *chunks(): AsyncGenerator<Uint8Array, void, void> {
    if (this.#response.body === null) return;
    const reader = this.#response.body.getReader();
    let ended = false;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        this.#watch.arm(this.#idleMs);
        yield value;
      }
      ended = true;
    } catch (error) {
      throw this.#watch.named(error);
    } finally {
      if (ended) this.#watch.end();
      else this.#watch.close();
    }
  }

  async text(limit: number): Promise<string> {
    const decoder = new TextDecoder();
    let bytes = 0;
    let text = "";
    for await (const chunk of this.chunks()) {
      bytes += chunk.length;
      if (bytes > limit) throw new HubError("server", `a reply of ${new URL(this.url).host} exceeds ${limit} bytes`);
      text += decoder.decode(chunk, { stream: true });
    }
    return text + decoder.decode();
  }

  discard(): void {
    this.#watch.close();
  }
}

function redirectTarget(reply: HttpReply, from: URL): URL | null {
  if (![301, 302, 303, 307, 308].includes(reply.status)) return null;
  const location = reply.headers.get("location");
  if (location === null || !URL.canParse(location, from.href)) return null;
  return new URL(location, from);
}

function errorCode(error: unknown): string {
  if (error instanceof Error && "code" in error && typeof error.code === "string") return error.code;
  return error instanceof Error ? error.name : "unknown";
}

function isTlsCode(code: string): boolean {
  return /^(CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_TLS|EPROTO|ERR_SSL|HOSTNAME_MISMATCH|UNKNOWN_CERT)/.test(code);
}
