/**
 * Who may read answers from a web page, and under which name the server answers (http-openai.md §1). Without these a
 * page that the user visits could talk to the server on this machine, directly or by DNS rebinding.
 */
import { RequestError } from "../errors.ts";
import type { ServerOptions } from "../options.ts";

const DEFAULT_ALLOW_HEADERS = "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta";
const LOOPBACK_NAMES: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** CORS headers for a request; only `Vary` when its origin may not read the answer, nothing when it has none. */
export function corsHeaders(request: Request, options: Pick<ServerOptions, "corsOrigins">): Record<string, string> {
  const origin = request.headers.get("origin");
  const any = options.corsOrigins.includes("*");
  if (origin === null && !any) return {};
  const allowed = any ? "*" : origin;
  if (allowed === null || (!any && !originAllowed(allowed, options.corsOrigins))) return { vary: "Origin" };
  return {
    "access-control-allow-origin": allowed,
    ...(!any && { vary: "Origin" }),
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": request.headers.get("access-control-request-headers") ?? DEFAULT_ALLOW_HEADERS,
  };
}

function originAllowed(origin: string, named: readonly string[]): boolean {
  if (named.includes(origin)) return true;
  const match = /^https?:\/\/([^/]+)$/.exec(origin);
  return match?.[1] !== undefined && LOOPBACK_NAMES.has(hostName(match[1]));
}

/** Throws 403 when a loopback server is addressed by a foreign name. */
export function checkHost(request: Request, options: Pick<ServerOptions, "loopbackBind" | "allowHosts">): void {
  if (!options.loopbackBind) return;
  const host = request.headers.get("host");
  const name = hostName(host ?? "");
  if (LOOPBACK_NAMES.has(name) || options.allowHosts.some((allowed) => allowed.toLowerCase() === name)) return;
  throw new RequestError({
    status: 403,
    type: "permission_error",
    message: "this Host name is not served here; start the server with --allow-host to accept it",
  });
}

/**
 * Throws 403 for a page that may not administer the server: any origin but the server's own, loopback, and those that
 * were named. `*` names none: it lets pages read answers, not change what answers.
 */
export function checkAdminOrigin(request: Request, { corsOrigins }: Pick<ServerOptions, "corsOrigins">): void {
  const origin = request.headers.get("origin");
  if (origin === null || originAllowed(origin, corsOrigins) || isOwnOrigin(origin, request)) return;
  throw new RequestError({
    status: 403,
    type: "permission_error",
    message: "this origin may not administer the server; name it with --cors-origin to allow it",
  });
}

/** The page that the server itself has sent. */
function isOwnOrigin(origin: string, request: Request): boolean {
  const host = request.headers.get("host");
  return host !== null && origin === `http://${host}`;
}

/** True for a client on this machine. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && (address === "::1" || /^(?:::ffff:)?127\./.test(address));
}

/** The name of a `Host` header or authority, lower case, without the port. */
function hostName(authority: string): string {
  return authority.toLowerCase().replace(/:\d*$/, "");
}
