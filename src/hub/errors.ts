/**
 * The one error class of this folder. `kind` is for code (exit codes, replies, "may another source help?"), the
 * message is for people: what is wrong and what to do. Messages never hold a token or a signed address.
 */

export type HubErrorKind =
  /** The text is no model name, path or revision. */
  | "bad_name"
  /** Nothing of that name here or on the hub. */
  | "not_found"
  /** The account must accept terms, or the token is missing, wrong or without access. */
  | "denied"
  /** Needs the network, which is switched off. */
  | "offline"
  /** The host does not answer (DNS, TLS, refused connection, retries used up). */
  | "unreachable"
  /** The hub answered something that breaks its own contract, or a file changed meanwhile. */
  | "server"
  /** The bytes do not have the promised hash. */
  | "corrupt"
  | "disk_full"
  | "cancelled"
  /** A folder or repository is there but cannot be used: files missing, no usable weights, an unsafe path. */
  | "unusable";

export class HubError extends Error {
  override readonly name = "HubError";
  readonly kind: HubErrorKind;
  constructor(kind: HubErrorKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** A failure that may pass: thrown inside this folder only, and turned into `final` when the retries are used up. */
export class TransientFault extends Error {
  readonly final: HubError;
  /** Waiting time that the server asked for, or null: the caller's own backoff. */
  readonly waitMs: number | null;
  /** The address was refused by the download host: ask the hub for a new one first. */
  readonly linkExpired: boolean;
  constructor(final: HubError, options: { waitMs?: number; linkExpired?: boolean } = {}) {
    super(final.message);
    this.final = final;
    this.waitMs = options.waitMs ?? null;
    this.linkExpired = options.linkExpired ?? false;
  }
}
