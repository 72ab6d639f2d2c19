/**
 * The longest wait for an event. A wait ends at its event, so that only a lost event takes this long, however busy the
 * machine is.
 */
export const PATIENCE_MS = 60_000;
