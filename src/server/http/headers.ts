/** The bound on a request's headers that is answered in the dialect's words; the socket layer has one above it. */
import { RequestError } from "../errors.ts";

/** Throws 431. */
export function checkHeaders(headers: Headers, maxBytes: number): void {
  let bytes = 0;
  for (const [name, value] of headers) bytes += name.length + value.length + 4;
  if (bytes <= maxBytes) return;
  throw new RequestError({
    status: 431,
    type: "invalid_request_error",
    message: `the request's headers take more than ${maxBytes} bytes`,
  });
}
