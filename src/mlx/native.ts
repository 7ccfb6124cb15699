/**
 * The loaded native library of this thread and its current stream. Each JavaScript thread that opens it gets streams
 * of its own; MLX arrays must be used only on the thread that made them, which is the engine thread.
 */

import { CString, dlopen, type Pointer } from "bun:ffi";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Handle, type Native, symbols } from "./bindings.ts";
import { MlxError } from "./error.ts";

const ABI_VERSION = 1;
const CPU = 0;
const GPU = 1;

export type Device = "cpu" | "metal";

function notOpen(): never {
  throw new MlxError("mlx", "the native library is not open on this thread: arrays belong to the engine thread");
}

/** Every function throws until `openMlx` has run on this thread. */
const closed = new Proxy({}, { get: () => notOpen }) as Native;

/** The native functions. A live binding: replaced once by `openMlx`. */
export let native: Native = closed;
/** The stream on which every op of this thread runs. */
export let stream: Handle = 0;
/** The device of `stream`. */
export let device: Device = "cpu";

/** The library that was loaded; "" before. */
let shimFile = "";

/** Text behind a C string; "" for null. */
export function textAt(address: Handle | null): string {
  return address === null ? "" : new CString(address as Pointer).toString();
}

/**
 * Loads the shim from `folder` (the one that holds `mlx/lib`) and makes this thread's stream. On macOS the stream is
 * Metal's when a device is there. Loading again on the same thread is a no-op.
 * @throws MlxError when the libraries are missing, of another version, or cannot be loaded.
 */
export function openMlx(folder: string): void {
  if (native !== closed) return;
  const suffix = process.platform === "darwin" ? "dylib" : "so";
  const path = join(folder, "mlx/lib", `libmlx_dspark_shim.${suffix}`);
  let library: ReturnType<typeof dlopen<typeof symbols>>;
  try {
    library = dlopen(path, symbols);
  } catch (error) {
    throw new MlxError("open", `cannot load ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
  const loaded = library.symbols as unknown as Native;
  const version = loaded.dspark_abi_version();
  if (version !== ABI_VERSION) {
    throw new MlxError("open", `${path} has interface version ${version}, this build needs ${ABI_VERSION}`);
  }
  loaded.dspark_init();
  native = loaded;
  shimFile = path;
  // MLX's compile would call a C++ compiler at run time on a CPU.
  native.mlx_disable_compile();
  selectDevice(process.platform === "darwin" && isAvailable(GPU) ? "metal" : "cpu");
}

/** 16 hex digits of the shim's file, our kernels among it: what was measured with another build says nothing of this one. */
export function kernelsFingerprint(): string {
  return shimFile === "" ? "" : createHash("sha256").update(readFileSync(shimFile)).digest("hex").slice(0, 16);
}

function deviceHandle(type: number): Handle {
  const handle = native.mlx_device_new_type(type, 0);
  if (handle === null) throw lastError("device_new");
  return handle;
}

function isAvailable(type: number): boolean {
  const answer = new Uint8Array(1);
  const handle = deviceHandle(type);
  const status = native.mlx_device_is_available(answer, handle);
  native.mlx_device_free(handle);
  return status === 0 && answer[0] === 1;
}

/** Makes a new stream on `name` the current one of this thread, and the default that MLX itself uses. */
export function selectDevice(name: Device): void {
  const handle = deviceHandle(name === "cpu" ? CPU : GPU);
  try {
    if (native.mlx_set_default_device(handle) !== 0) throw lastError("set_default_device");
    const made = native.mlx_stream_new_device(handle);
    if (made === null) throw lastError("stream_new");
    if (native.mlx_set_default_stream(made) !== 0) throw lastError("set_default_stream");
    if (stream !== 0) native.mlx_stream_free(stream);
    stream = made;
    device = name;
  } finally {
    native.mlx_device_free(handle);
  }
}

/** Waits until everything scheduled on this thread's stream is computed. */
export function synchronize(): void {
  if (native.mlx_synchronize(stream) !== 0) throw lastError("synchronize");
}

/** The recorded message of this thread's last failed call, as an error of `op`. */
export function lastError(op: string, inputs: readonly string[] = []): MlxError {
  // mlx-c appends the place in its own source: " at ops.cpp:12".
  return new MlxError(op, textAt(native.dspark_last_error()).replace(/ at \S+:\d+$/, ""), inputs);
}

/** Version of the linked MLX, e.g. "0.32.2". */
export function mlxVersion(): string {
  const cell = new BigUint64Array(1);
  if (native.mlx_version(cell) !== 0) throw lastError("version");
  const handle = Number(cell[0]);
  const text = textAt(native.mlx_string_data(handle));
  native.mlx_string_free(handle);
  return text;
}
