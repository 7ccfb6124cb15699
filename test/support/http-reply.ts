/** A reply of a server, read to its end, and the views of it that tests ask for. */

export class Reply {
  constructor(
    readonly status: number,
    readonly headers: Headers,
    readonly text: string,
    /** From the request to the first byte of the body, or its end. */
    readonly firstByteMs: number,
  ) {}

  /** A field of the JSON body. */
  at(...path: readonly (string | number)[]): unknown {
    return fieldAt(JSON.parse(this.text), path);
  }

  /** Data frames of a stream, parsed; `[DONE]` stays a string. */
  get frames(): unknown[] {
    return this.text.split("\n\n").flatMap((frame) => {
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (data === undefined) return [];
      return [data === "[DONE]" ? data : JSON.parse(data)];
    });
  }

  /** Values of a field in all frames that have it. */
  each(...path: readonly (string | number)[]): unknown[] {
    return this.frames.map((frame) => fieldAt(frame, path)).filter((value) => value !== undefined && value !== null);
  }

  /** Text of a chat answer, streamed or not. */
  get content(): string {
    if (!this.isStream) return String(this.at("choices", 0, "message", "content"));
    return this.each("choices", 0, "delta", "content").join("");
  }

  get isStream(): boolean {
    return this.headers.get("content-type")?.startsWith("text/event-stream") === true;
  }
}

/** A field path of parsed JSON. */
export function fieldAt(value: unknown, path: readonly (string | number)[]): unknown {
  let current = value;
  for (const key of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = Reflect.get(current, key);
  }
  return current;
}
