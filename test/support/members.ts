export type Members = Readonly<Record<string, unknown>>;

/** Returns the members of an object, or none of another value. */
export function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
