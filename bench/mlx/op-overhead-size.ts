/** Sizes of a burst, shared by the three sides: about 20 ms of work. */
export const OPS_PER_BURST = 40_000;
/** Handles that are freed together: what a step of a small model makes. */
export const OPS_PER_SCOPE = 200;
