/**
 * Streaming writer of one safetensors file: all names and sizes are known first, the bytes come in any order and in
 * pieces. Tensors are laid out by falling element size behind a padded header, so every one is aligned and can be
 * mapped. The file is complete only after finish(); making it appear atomically is the caller's business.
 */
import { closeSync, fsyncSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { CheckpointError } from "./errors.ts";
import { dtypeBits, type SafetensorsDtype } from "./safetensors-dtype.ts";

export interface PlannedTensor {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
}

interface Slot {
  readonly offset: number;
  readonly bytes: number;
  written: number;
}

/** Header length is padded to this, so that the data starts on a page-friendly boundary of every element type. */
const ALIGNMENT = 64;

/** Bytes of one planned tensor. */
export function plannedBytes(tensor: PlannedTensor): number {
  return (tensor.shape.reduce((product, dim) => product * dim, 1) * dtypeBits(tensor.dtype)) / 8;
}

export class SafetensorsWriter {
  private readonly slots = new Map<string, Slot>();
  private fd: number | null;
  /** Size of the finished file in bytes. */
  readonly totalBytes: number;

  /**
   * Creates `file` (which must not exist) and writes its header.
   * @throws CheckpointError on two tensors of one name; node's error when the file cannot be created
   */
  constructor(
    readonly file: string,
    plan: readonly PlannedTensor[],
    metadata: Readonly<Record<string, string>> = { format: "mlx" },
  ) {
    const ordered = [...plan].sort((a, b) => dtypeBits(b.dtype) - dtypeBits(a.dtype));
    const header: Record<string, unknown> = { __metadata__: metadata };
    let end = 0;
    for (const tensor of ordered) {
      if (this.slots.has(tensor.name)) throw this.error(tensor.name, "is planned twice");
      const bytes = plannedBytes(tensor);
      header[tensor.name] = { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [end, end + bytes] };
      this.slots.set(tensor.name, { offset: end, bytes, written: 0 });
      end += bytes;
    }
    const json = Buffer.from(JSON.stringify(header));
    const length = Math.ceil((8 + json.byteLength) / ALIGNMENT) * ALIGNMENT - 8;
    const head = Buffer.alloc(8 + length, 0x20);
    head.writeBigUInt64LE(BigInt(length), 0);
    json.copy(head, 8);
    for (const [name, slot] of this.slots) this.slots.set(name, { ...slot, offset: slot.offset + head.byteLength });
    this.totalBytes = head.byteLength + end;
    this.fd = openSync(file, "wx");
    try {
      ftruncateSync(this.fd, this.totalBytes);
      writeAll(this.fd, head, 0);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /**
   * Writes a piece of tensor `name` at byte `at` of the tensor. Pieces must not overlap.
   * @throws CheckpointError when the name is not planned or the piece does not fit
   */
  write(name: string, bytes: Uint8Array, at = 0): void {
    const slot = this.slots.get(name);
    if (slot === undefined) throw this.error(name, "was not planned");
    if (this.fd === null) throw this.error(name, "is written after the file was closed");
    if (at + bytes.byteLength > slot.bytes || slot.written + bytes.byteLength > slot.bytes) {
      throw this.error(name, `gets more than its ${slot.bytes} bytes`);
    }
    writeAll(this.fd, bytes, slot.offset + at);
    slot.written += bytes.byteLength;
  }

  /**
   * Flushes to the disk and closes.
   * @throws CheckpointError when a tensor was not written completely
   */
  finish(): void {
    for (const [name, slot] of this.slots) {
      if (slot.written !== slot.bytes) throw this.error(name, `got ${slot.written} of its ${slot.bytes} bytes`);
    }
    if (this.fd !== null) fsyncSync(this.fd);
    this.close();
  }

  /** Closes without any check; safe to call twice. */
  close(): void {
    if (this.fd !== null) closeSync(this.fd);
    this.fd = null;
  }

  private error(tensor: string, message: string): CheckpointError {
    return new CheckpointError({ file: this.file, tensor, check: "set", message });
  }
}

function writeAll(fd: number, bytes: Uint8Array, position: number): void {
  let done = 0;
  while (done < bytes.byteLength) done += writeSync(fd, bytes, done, bytes.byteLength - done, position + done);
}
