/** 405 for the methods that a known path does not have (HEAD and OPTIONS are answered before any route). */
import { Elysia } from "elysia";
import { RequestError } from "../errors.ts";

/** Routes that refuse every other method on these paths, naming the right one. */
export function onlyMethod(method: "GET" | "POST", paths: readonly string[]) {
  const app = new Elysia();
  for (const path of paths) {
    app.all(
      path,
      ({ request }) => {
        throw new RequestError({
          status: 405,
          type: "invalid_request_error",
          message: `${request.method} is not allowed here; use ${method}`,
          headers: { Allow: `${method}, HEAD, OPTIONS` },
        });
      },
      { detail: { hide: true } },
    );
  }
  return app;
}
