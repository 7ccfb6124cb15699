/**
 * Bounds of the sandbox. A template is somebody else's program: whatever it does, it ends soon with text or an error.
 * Numbers from the specification (steps, output, recursion); the rest derived so that no single step is long.
 */

/** Statements, loop rounds and calls of one rendering, plus work charged by size. */
export const STEPS_MAX = 1_000_000;
/** UTF-16 units of output, and of any single string. */
export const OUTPUT_MAX = 16 * 2 ** 20;
/** Macro calls inside macro calls. */
export const RECURSION_MAX = 200;
/** Nesting of statements and expressions in the source. */
export const NESTING_MAX = 200;
/** Operators in one unbracketed chain; each is a stack frame when evaluated. */
export const CHAIN_MAX = 1_000;
/** UTF-16 units of source. The largest published chat templates have about 60 kB. */
export const SOURCE_MAX = 512 * 1024;
/** Items of a list made by repetition, and of a `range` (as in Jinja's sandbox). */
export const ITEMS_MAX = 100_000;
/** Bits of an integer; beyond it arithmetic alone could take seconds. */
export const INTEGER_BITS_MAX = 16_384;
/** Characters or items that count as one step where an operation's work grows with its operand. */
export const WORK_PER_STEP = 64;
/** What one piece or character costs, in characters, where the work is not one native pass over the text. */
export const PIECE_WORK = 32;
