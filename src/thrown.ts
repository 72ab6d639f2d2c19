/** Returns the message of a thrown value, which may be no error. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Returns the code that Node or the system gives an error, such as `ENOENT`; undefined if it has none. */
export function systemCode(thrown: unknown): string | undefined {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : undefined;
}

/** Returns whether an error has this code of Node or the system. */
export function isCode(thrown: unknown, code: string): boolean {
  return systemCode(thrown) === code;
}

/** Resolves with whether a promise is fulfilled. Never rejects. */
export function isFulfilled(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}
