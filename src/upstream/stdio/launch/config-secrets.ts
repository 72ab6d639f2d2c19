import type { StdioTarget } from '../../../config/values/upstream-config.ts';

/** A shorter value is not looked for: it would be found in unrelated text. */
const MIN_CHARS = 8;

/** Names of options and variables whose values are secrets, whatever they look like. */
const SECRET_NAME = /key|token|secret|passw|credential|auth/i;

/** Values that are looked for in vain: paths, and words of letters alone. */
const HARMLESS = /^(?:[./~].*|[A-Za-z]+)$/;

/**
 * Returns the values of a program's variables and options that may be secrets, the longest first. Programs repeat them in their
 * messages, which reach the log and the status.
 */
export function configSecrets({ env, args }: Pick<StdioTarget, 'env' | 'args'>): readonly string[] {
  const variables = Object.entries(env)
    .filter(([name, value]) => SECRET_NAME.test(name) || !HARMLESS.test(value))
    .map(([, value]) => value);
  const options = args.flatMap((arg, index) => {
    const [, name = '', value] = /^(--?[^=]+)(?:=(.*))?$/s.exec(arg) ?? [];
    if (!SECRET_NAME.test(name)) return [];
    return [value ?? args[index + 1] ?? ''];
  });
  return [...new Set([...variables, ...options])]
    .filter((value) => value.length >= MIN_CHARS)
    .toSorted((a, b) => b.length - a.length);
}
