/**
 * Sequential little-endian reads over a file through one refilled window: the header of a 100 GB file costs a few
 * positional reads of 1 MiB. Running past the end of the file throws; nothing is allocated on the word of the file
 * beyond what the file really holds.
 */
import { CheckpointError } from "./errors.ts";
import { readExact } from "./positional-read.ts";

const WINDOW_BYTES = 1 << 20;

export class WindowReader {
  private window = new Uint8Array(0);
  private view = new DataView(this.window.buffer);
  private windowStart = 0;
  private at = 0;
  private readonly utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(
    private readonly fd: number,
    private readonly file: string,
    private readonly fileSize: number,
  ) {}

  /** Absolute position of the next byte. */
  get position(): number {
    return this.windowStart + this.at;
  }

  get remaining(): number {
    return this.fileSize - this.position;
  }

  u8(): number {
    const at = this.take(1);
    return this.view.getUint8(at);
  }

  u16(): number {
    const at = this.take(2);
    return this.view.getUint16(at, true);
  }

  u32(): number {
    const at = this.take(4);
    return this.view.getUint32(at, true);
  }

  u64(): bigint {
    const at = this.take(8);
    return this.view.getBigUint64(at, true);
  }

  f32(): number {
    const at = this.take(4);
    return this.view.getFloat32(at, true);
  }

  f64(): number {
    const at = this.take(8);
    return this.view.getFloat64(at, true);
  }

  /** A u64 that counts something: must be exact as a number. */
  size(): number {
    const position = this.position;
    const value = this.u64();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw this.error(`count ${value} at byte ${position} is absurd`);
    return Number(value);
  }

  /** u64 length and that many bytes of UTF-8. */
  string(): string {
    const length = this.size();
    if (length > this.remaining)
      throw this.error(`a string of ${length} bytes at byte ${this.position} exceeds the file`);
    const start = this.take(length);
    try {
      return this.utf8.decode(this.window.subarray(start, start + length));
    } catch {
      throw this.error(`a string before byte ${this.position} is not UTF-8`);
    }
  }

  /** Makes `count` bytes available and steps over them; returns their place in the window. */
  private take(count: number): number {
    if (this.at + count > this.window.byteLength) this.refill(count);
    const start = this.at;
    this.at += count;
    return start;
  }

  private refill(count: number): void {
    const start = this.position;
    if (start + count > this.fileSize)
      throw this.error(`ends inside its header (byte ${this.fileSize}); file truncated?`);
    this.window = new Uint8Array(Math.min(Math.max(count, WINDOW_BYTES), this.fileSize - start));
    readExact(this.fd, this.file, this.window, start);
    this.view = new DataView(this.window.buffer);
    this.windowStart = start;
    this.at = 0;
  }

  private error(message: string): CheckpointError {
    return new CheckpointError({ file: this.file, check: "gguf", message });
  }
}
