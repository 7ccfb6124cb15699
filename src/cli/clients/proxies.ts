/** Proxies of the environment, and the servers that must be reached without them. */

/**
 * `env` for a program that is to reach `url` directly: where a proxy is set, a server on this machine would be asked
 * through it, too. `env` itself when there is nothing to add.
 */
export function reaching(
  url: string,
  env: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string | undefined>> {
  const proxied = Object.entries(env).some(([name, value]) => /^(https?|all)_proxy$/i.test(name) && value);
  const { hostname } = new URL(url);
  const { NO_PROXY = "", no_proxy = NO_PROXY } = env;
  if (!proxied || !isLocal(hostname)) return env;
  const direct = (list: string) => {
    const names = list.split(",").filter((name) => name !== "");
    return names.includes(hostname) ? list : [...names, hostname].join(",");
  };
  return { ...env, NO_PROXY: direct(NO_PROXY), no_proxy: direct(no_proxy) };
}

function isLocal(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
}
