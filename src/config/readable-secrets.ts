import { isRecord } from '../json/record.ts';
import type { Data, Document } from './document/document.ts';
import { isList, valueAt } from './document/expanded.ts';
import { type Path, problemLine } from './document/problem.ts';
import type { EntryPath } from './upstreams/client-file.ts';

/** Settings that are secrets as a whole. */
const SECRETS: ReadonlySet<string> = new Set(['clientSecret', 'privateKey', 'wrappingKeys', 'chainKeys']);
const PASSWORD = /^[^:]+:\/\/[^/?#@:]*:[^/?#@]+@/;
const OTHERS_MAY_READ = 0o004;

/**
 * Returns a warning for each secret in a config file that every user of the machine can read. Secrets are those of the gateway, and the
 * `auth` and `tls` of each upstream. A secret that the file takes from elsewhere by `${…}` is not in it.
 *
 * @param mode that of the file.
 * @param entries the upstreams that the file has.
 */
export function readableSecrets(
  file: string,
  mode: number,
  document: Document,
  entries: readonly EntryPath[],
): string[] {
  if (process.platform === 'win32') return [];
  const ofUpstreams = entries.flatMap(({ path }): Path[] => [
    [...path, 'auth'],
    [...path, 'tls'],
  ]);
  const paths = [['gateway'], ...ofUpstreams].flatMap((path) => [...secretsIn(valueAt(document.data, path), path)]);
  if (paths.length === 0) return [];
  if ((mode & OTHERS_MAY_READ) === 0) return [];
  const octal = (mode & 0o777).toString(8).padStart(4, '0');
  const message = `a secret in a file that every user of this machine can read (mode ${octal}); run: chmod o-r ${file}, or write \${NAME} or \${file:/path}`;
  return paths.map((path) => problemLine(document.problem(path, message)));
}

function* secretsIn(value: Data | undefined, path: Path): Iterable<Path> {
  if (isList(value)) {
    for (const [index, item] of value.entries()) yield* secretsIn(item, [...path, index]);
  } else if (isRecord(value)) {
    for (const [key, member] of Object.entries(value)) {
      const place = path.at(-1);
      const isSecret =
        SECRETS.has(key) || place === 'headers' || (place === 'tls' && key === 'key') || hasPassword(member);
      if (isSecret && [member].flat().some(isLiteral)) yield [...path, key];
      else if (!isSecret) yield* secretsIn(member, [...path, key]);
    }
  }
}

function isLiteral(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && !value.includes('${');
}

function hasPassword(value: unknown): boolean {
  return typeof value === 'string' && PASSWORD.test(value);
}
