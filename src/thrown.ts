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

/** Handles the failure to use a file: returns undefined if there is no such file, and throws other errors on. */
export function undefinedIfMissing(thrown: unknown): undefined {
  if (!isCode(thrown, 'ENOENT')) throw thrown;
}

/** Resolves with whether a promise is fulfilled. Never rejects. */
export function isFulfilled(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}

/** The class of an error that a caller expects. */
type Expected<E extends Error> = abstract new (...args: never[]) => E;

/** Returns a handler of rejections that returns errors of one class, and throws all others on. */
export function expected<E extends Error>(kind: Expected<E>): (thrown: unknown) => E {
  return (thrown) => {
    if (thrown instanceof kind) return thrown;
    throw thrown;
  };
}

/** Returns the result of a function, or the error of one class that it throws. All others are thrown on. */
export function resultOrError<Value, E extends Error>(kind: Expected<E>, run: () => Value): Value | E {
  try {
    return run();
  } catch (thrown) {
    return expected(kind)(thrown);
  }
}
