/** The one table of pinned versions is `package.json`: npm packages as npm reads them, everything native under `native`, client programs under `clients`. */
import manifest from "../../package.json" with { type: "json" };

export const version = manifest.version;
export const native = manifest.native;
/** Coding agents that the tests drive. */
export const clients = manifest.clients;
