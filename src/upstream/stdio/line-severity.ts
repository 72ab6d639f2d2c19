import type { Severity } from '../../protocol/severity.ts';

/** The part of a line that is searched for its severity. */
const HEAD_CHARS = 200;

const SEVERITIES: ReadonlyMap<string, Severity> = new Map([
  ['trace', 'debug'],
  ['debug', 'debug'],
  ['info', 'info'],
  ['notice', 'notice'],
  ['warn', 'warning'],
  ['warning', 'warning'],
  ['err', 'error'],
  ['error', 'error'],
  ['traceback', 'error'],
  ['fatal', 'critical'],
  ['panic', 'critical'],
  ['critical', 'critical'],
]);
const WORDS = [...SEVERITIES.keys()].join('|');

/** The forms in which programs write it: `level=warn`, `"level":"warn"`; `error: …`, `[Error] …`; and ` WARNING ` in the line. */
const FORMS: readonly RegExp[] = [
  new RegExp(`"?\\b(?:level|severity|levelname)"?\\s*[=:]\\s*"?(${WORDS})\\b`, 'i'),
  new RegExp(`^\\W*(${WORDS})\\b(?=\\W*[:\\]|(])`, 'i'),
  new RegExp(`\\b(${WORDS.toUpperCase()})\\b`),
];

/** Returns the severity that a program gives to a line of its stderr; undefined if it names none. */
export function severityOf(line: string): Severity | undefined {
  const head = line.slice(0, HEAD_CHARS);
  for (const form of FORMS) {
    const word = form.exec(head)?.[1];
    if (word !== undefined) return SEVERITIES.get(word.toLowerCase());
  }
  return undefined;
}
