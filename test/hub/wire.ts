/**
 * A minimal HTTP/1.1 server on a raw socket, for tests that need replies no honest server sends: bodies cut by a
 * reset, silence in the middle, a body shorter than its length. (`Bun.serve` turns such bodies into chunked ones.)
 */
import { createServer, type Socket } from "node:net";

export interface WireRequest {
  readonly method: string;
  /** Path with query. */
  readonly path: string;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

export interface WireReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** How the body is sent; absent: at once. */
  readonly manner?:
    | { readonly kind: "cut"; readonly after: number }
    | { readonly kind: "stall"; readonly after: number; readonly ms: number }
    | { readonly kind: "slow"; readonly bytesPerS: number }
    /** Ends the connection cleanly after fewer bytes than promised. */
    | { readonly kind: "short"; readonly bytes: number };
}

export interface WireServer {
  readonly port: number;
  close(): void;
}

export async function serveWire(handle: (request: WireRequest) => WireReply): Promise<WireServer> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy()); // A client that leaves in the middle is part of the tests.
    let pending: Buffer = Buffer.alloc(0);
    let busy = Promise.resolve();
    socket.on("data", (data: Buffer) => {
      pending = Buffer.concat([pending, data]);
      if (!/^[A-Z]/.test(pending.toString("latin1", 0, 1))) {
        socket.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"); // TLS spoken to a plain port.
        return;
      }
      for (let parsed = parse(pending); parsed !== null; parsed = parse(pending)) {
        const { request, length } = parsed;
        pending = pending.subarray(length);
        busy = busy.then(() => send(socket, request.method, handle(request)));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function parse(bytes: Buffer): { request: WireRequest; length: number } | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [first = "", ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const [method = "", path = ""] = first.split(" ");
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const length = end + 4 + Number(headers.get("content-length") ?? 0);
  if (bytes.length < length) return null;
  return { request: { method, path, headers, body: bytes.subarray(end + 4, length).toString("utf8") }, length };
}

async function send(socket: Socket, method: string, reply: WireReply): Promise<void> {
  if (socket.destroyed) return;
  const { status, body, manner } = reply;
  const headers = { "Content-Length": String(body.length), ...reply.headers };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n`);
  if (method === "HEAD") return;
  if (manner === undefined) {
    await write(socket, body);
  } else if (manner.kind === "cut") {
    await write(socket, body.subarray(0, manner.after));
    await Bun.sleep(10); // Let the bytes arrive: a reset may overtake them.
    socket.resetAndDestroy();
  } else if (manner.kind === "short") {
    await write(socket, body.subarray(0, manner.bytes));
    await Bun.sleep(5); // So that the client reads the bytes before it learns of the end.
    socket.end();
  } else if (manner.kind === "stall") {
    await write(socket, body.subarray(0, manner.after));
    await Bun.sleep(manner.ms);
    if (!socket.destroyed) await write(socket, body.subarray(manner.after));
  } else {
    const step = Math.max(1, Math.floor(manner.bytesPerS / 100));
    for (let at = 0; at < body.length && !socket.destroyed; at += step) {
      await write(socket, body.subarray(at, at + step));
      await Bun.sleep(10);
    }
  }
}

function write(socket: Socket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed || bytes.length === 0) resolve();
    else socket.write(bytes, () => resolve());
  });
}
