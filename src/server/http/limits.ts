/** Bounds of the transport: what a client may hold, and for how long. None is met by a client that means well. */

export interface TransportLimits {
  /** Requests at once, streams and idle waits included; more get a 503. */
  readonly requests: number;
  /** Names and values of a request's headers. Beyond 16 KiB the socket layer itself answers 431, without a body. */
  readonly headerBytes: number;
  /** A body must come within this time … */
  readonly bodyMs: number;
  /** … and a large one takes longer, but not slower than this. */
  readonly bodyBytesPerSecond: number;
  /** How long a full socket may stay unread in the middle of a stream. */
  readonly stallMs: number;
}

export const DEFAULT_LIMITS: TransportLimits = {
  requests: 1024,
  headerBytes: 15 * 1024,
  // Below the socket layer's 30 s of idleness, which end a connection without an answer.
  bodyMs: 20_000,
  bodyBytesPerSecond: 16 * 1024,
  stallMs: 30_000,
};
