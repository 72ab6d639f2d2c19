import { hash } from 'node:crypto';

/** Words that examples have in the place of a secret. */
const EXAMPLES = [
  'admin',
  'api key',
  'bar',
  'change it',
  'change me',
  'change this',
  'client secret',
  'dummy',
  'example',
  'foo',
  'fixme',
  'insecure',
  'key',
  'letmein',
  'my key',
  'my secret',
  'my token',
  'password',
  'placeholder',
  'replace me',
  'secret',
  'test',
  'todo',
  'token',
  'your api key',
  'your key',
  'your secret',
  'your token',
  'xxx',
];
const JOINED = new Set(EXAMPLES.map((words) => words.replaceAll(' ', '')));
/** Examples that say what to write, such as `<your client secret here>`. */
const INSTRUCTION = /^(?:your|insert|replacewith|changeme)[a-z]{0,40}$/;

/** Returns whether a secret is the text of an example, such as `change-me` or `<your-secret>`, or says nothing, such as `***`. */
export function isPlaceholder(secret: string): boolean {
  const letters = secret.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
  return letters === '' || /^(.)\1*$/.test(letters) || JOINED.has(letters) || INSTRUCTION.test(letters);
}

let hashes: ReadonlySet<string> | undefined;

/** Returns whether a SHA-256, hex in lower case, is that of a key from an example in one of its usual spellings. */
export function isPlaceholderHash(sha256: string): boolean {
  hashes ??= new Set(
    EXAMPLES.flatMap((words) => ['-', '_', '', ' '].map((separator) => words.replaceAll(' ', separator)))
      .flatMap((text) => [text, text.toUpperCase()])
      // `echo` adds a line break.
      .flatMap((text) => [hash('sha256', text), hash('sha256', `${text}\n`)]),
  );
  return hashes.has(sha256);
}
