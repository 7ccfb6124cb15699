/**
 * Counts that a grammar cannot hold (structured-output.md §4): follows a row's JSON texts byte by byte and knows, for each
 * open string, array and object, how much of its limit is used. Invariant: states are never changed, a step makes a new
 * one, so that drafts need no undoing; and a count is never less than the true one, so that no limit is passed.
 */
import type { CounterNode, CounterTable } from "../../decoding/constraint.ts";

/** An open array or object. */
interface Container {
  readonly kind: "array" | "object";
  readonly nodes: readonly CounterNode[];
  /** Elements or members that have begun. */
  readonly count: number;
  readonly max: number;
  /** Of an object: nodes of the value behind the key that was read last. */
  readonly value: readonly CounterNode[];
  readonly below: Container | null;
}

interface OpenString {
  readonly isKey: boolean;
  readonly length: number;
  readonly max: number;
  /** Bytes that still belong to an escape. */
  readonly escape: number;
  /** Bytes as written: of a key all, of a value as many as an escape has. */
  readonly recent: string;
}

export interface CounterState {
  readonly container: Container | null;
  readonly string: OpenString | null;
  /** Nodes of the value that comes next, where one may begin. */
  readonly next: readonly CounterNode[] | null;
  readonly inText: boolean;
  /** The newest text outside JSON texts, as long as the longest start. */
  readonly tail: string;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** Of `\uXXXX`. */
const ESCAPE_LENGTH = 6;
const HIGH_SURROGATE = /\\u[dD][89abAB][0-9a-fA-F]{2}$/;

export class Counters {
  readonly start: CounterState;
  private readonly longestStart: number;

  constructor(private readonly table: CounterTable) {
    this.longestStart = Math.max(0, ...table.starts.map(({ after }) => after.length));
    const outside: CounterState = { container: null, string: null, next: null, inText: false, tail: "" };
    this.start = this.begun(outside) ?? outside;
  }

  /** The state behind `bytes`; null: a limit is passed. */
  advance(state: CounterState, bytes: Uint8Array): CounterState | null {
    let current: CounterState | null = state;
    for (const byte of bytes) {
      current = this.step(current, byte);
      if (current === null) return null;
    }
    return current;
  }

  /** Commas that may follow before an array or object can have too many members. */
  memberRoom({ container }: CounterState): number {
    let room = Number.POSITIVE_INFINITY;
    for (let at = container; at !== null; at = at.below) room = Math.min(room, at.max - at.count);
    return room;
  }

  private step(state: CounterState, byte: number): CounterState | null {
    if (!state.inText) {
      const tail = (state.tail + String.fromCharCode(byte)).slice(-this.longestStart);
      const outside = { ...state, tail };
      return this.begun(outside) ?? outside;
    }
    if (state.string !== null) return this.inString(state, state.string, byte);
    switch (byte) {
      case QUOTE:
        return this.openString(state);
      case 0x5b: // [
      case 0x7b: // {
        return this.openContainer(state, byte === 0x5b ? "array" : "object");
      case 0x5d: // ]
      case 0x7d: // }
        return state.container === null
          ? state
          : this.closed({ ...state, container: state.container.below, next: null });
      case 0x3a: // :
        return { ...state, next: state.container?.value ?? [] };
      case 0x2c: // ,
        return { ...state, next: null };
      default:
        return isBlank(byte) ? state : this.scalar(state);
    }
  }

  /** At the beginning of a JSON text. */
  private begun(outside: CounterState): CounterState | null {
    const start = this.table.starts.find(({ after }) => outside.tail.endsWith(after));
    if (start === undefined) return null;
    return { container: null, string: null, next: this.nodes(start.root), inText: true, tail: "" };
  }

  private nodes(indices: readonly number[]): readonly CounterNode[] {
    return indices.flatMap((index) => this.table.nodes[index] ?? []);
  }

  /** Something begins: in an array an element, in an object (as a key) a member. Null: one too many. */
  private counted(state: CounterState): { state: CounterState; nodes: readonly CounterNode[]; isKey: boolean } | null {
    const { container, next } = state;
    if (next !== null || container === null)
      return { state: { ...state, next: null }, nodes: next ?? [], isKey: false };
    const { count } = container;
    if (count >= container.max) return null;
    const counted = { ...state, container: { ...container, count: count + 1 }, next: null };
    if (container.kind === "object") return { state: counted, nodes: [], isKey: true };
    const nodes = container.nodes.flatMap((node) => this.nodes(node.prefix[count] ?? node.items));
    return { state: counted, nodes, isKey: false };
  }

  private openString(state: CounterState): CounterState | null {
    const begun = this.counted(state);
    if (begun === null) return null;
    const max = least(begun.nodes, ({ maxLength }) => maxLength);
    return { ...begun.state, string: { isKey: begun.isKey, length: 0, max, escape: 0, recent: "" } };
  }

  private openContainer(state: CounterState, kind: Container["kind"]): CounterState | null {
    const begun = this.counted(state);
    if (begun === null) return null;
    const { nodes } = begun;
    const max = least(nodes, (node) => (kind === "array" ? node.maxItems : node.maxProperties));
    const below = begun.state.container;
    return { ...begun.state, container: { kind, nodes, count: 0, max, value: [], below } };
  }

  /** A byte of a number or a word: the first of them begins the value. */
  private scalar(state: CounterState): CounterState | null {
    const { container, next } = state;
    if (container?.kind !== "array") return next === null ? state : { ...state, next: null };
    // `next` is not used in arrays: [] marks that the element has begun.
    if (next !== null) return state;
    const begun = this.counted(state);
    return begun === null ? null : { ...begun.state, next: [] };
  }

  private inString(state: CounterState, string: OpenString, byte: number): CounterState | null {
    const recent = kept(string, byte);
    if (string.escape > 0) {
      // `\u` has four digits more.
      const left = string.escape === 1 && recent.endsWith("\\u") ? 4 : string.escape - 1;
      // The two escapes of a surrogate pair are one code point: the first of them does not count.
      const length = string.length - (left === 0 && HIGH_SURROGATE.test(recent) ? 1 : 0);
      return { ...state, string: { ...string, length, escape: left, recent } };
    }
    if (byte === QUOTE) return this.stringClosed(state, string);
    const continues = (byte & 0xc0) === 0x80;
    const length = string.length + (continues ? 0 : 1);
    if (length > string.max) return null;
    return { ...state, string: { ...string, length, escape: byte === BACKSLASH ? 1 : 0, recent } };
  }

  private stringClosed(state: CounterState, string: OpenString): CounterState {
    const { container } = state;
    if (!string.isKey || container === null) return this.closed({ ...state, string: null });
    const key = keyText(string.recent);
    const value = container.nodes.flatMap((node) =>
      this.nodes(Object.hasOwn(node.properties, key) ? (node.properties[key] ?? []) : node.others),
    );
    return { ...state, string: null, container: { ...container, value } };
  }

  /** A value has ended; at the outermost level the JSON text with it. */
  private closed(state: CounterState): CounterState {
    return state.container === null ? { ...state, inText: false, tail: "", next: null } : state;
  }
}

function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function least(nodes: readonly CounterNode[], limit: (node: CounterNode) => number | null): number {
  return nodes.reduce((min, node) => Math.min(min, limit(node) ?? min), Number.POSITIVE_INFINITY);
}

function kept({ isKey, recent }: OpenString, byte: number): string {
  const bytes = recent + String.fromCharCode(byte);
  return isKey ? bytes : bytes.slice(-ESCAPE_LENGTH);
}

/** Bytes of a JSON string, one a character, → its value. */
function keyText(bytes: string): string {
  const text = new TextDecoder().decode(Uint8Array.from(bytes, (character) => character.charCodeAt(0)));
  try {
    return String(JSON.parse(`"${text}"`));
  } catch (error) {
    // Only a key that is no JSON string: the grammar does not allow it.
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}
