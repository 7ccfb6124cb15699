/** Shows a page in the user's browser. A server is as good without it: what goes wrong is said and nothing more. */
import { type CliIo, say } from "./io.ts";

const OPENERS: Readonly<Record<string, string>> = { darwin: "open", linux: "xdg-open" };

/** Opens the server's page of its API. */
export function openPage(url: string, io: CliIo): void {
  const page = `${url}/openapi`;
  const name = OPENERS[process.platform];
  const opener = name === undefined ? null : Bun.which(name, { PATH: io.env.PATH ?? "" });
  if (opener === null) {
    say(io, `no program to open a page with: it is at ${page}`);
    return;
  }
  Bun.spawn([opener, page], { stdin: "ignore", stdout: "ignore", stderr: "ignore", env: { ...io.env } }).unref();
}
