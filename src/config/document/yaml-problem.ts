import type { ErrorCode } from 'yaml';

/** A syntax error of the YAML parser, as far as we read it. */
interface YamlFault {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Our messages for errors whose own message quotes the file, which may hold secrets, or names the parser's API. */
const MESSAGES: Readonly<Partial<Record<ErrorCode, string>>> = {
  BAD_DIRECTIVE: 'a line that begins with "%" is a directive of YAML; this one is unknown',
  BAD_DQ_ESCAPE: 'this escape is not YAML; in double quotes, a backslash is written "\\\\"',
  BAD_SCALAR_START: 'a text that begins with this character needs quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a text with ": " in it needs quotes',
  BLOCK_IN_FLOW: 'a list or map in several lines cannot stand inside {…} or […]',
  MULTILINE_IMPLICIT_KEY: 'a ":" is missing at the end of this line, or the next line is indented too far',
  MULTIPLE_DOCS: 'expected one document; this line begins another',
  RESOURCE_EXHAUSTION: 'nested too deeply',
  TAB_AS_INDENT: 'a tab indents this line; YAML accepts spaces alone',
  TAG_RESOLVE_FAILED: 'a text that begins with "!" needs quotes',
};

const MISALIGNED = 'this line is indented less or more than the lines beside it';

/** Our messages for errors that share a code with others, by the parser's. */
const BY_MESSAGE: readonly (readonly [RegExp, string])[] = [
  [/^Block scalar header/, 'a text that begins with "|" or ">" needs quotes'],
  [/start at the same column$|^A block sequence may not/, MISALIGNED],
  [/^Missing closing/, 'the text in quotes that begins here has no end'],
  [/end with a \]$/, 'expected "]" before this; a bracket is not closed, or this line needs to be indented'],
  [/end with a \}$/, 'expected "}" before this; a brace is not closed, or this line needs to be indented'],
  [/^Unexpected flow-seq-end token/, 'this "]" closes no bracket; remove it'],
  [/^Unexpected flow-map-end token/, 'this "}" closes no brace; remove it'],
  [
    /^Unexpected scalar token$|^Missing , .*between flow/,
    'expected "," or a new line before this, or all of the text in quotes',
  ],
  [/at node end$/, "the value has ended before this; write all of it in quotes, and a quote inside as '' or \\\""],
  [/^Implicit map keys need to be followed/, 'expected a name, a ":" and a space at the beginning of this line'],
];

/** Returns whether a text in quotes has no end. The error is at the end of the file or line. */
export function isUnclosed({ message }: YamlFault): boolean {
  return message.startsWith('Missing closing');
}

/** Returns the message for a syntax error. It holds nothing of the file. */
export function yamlMessage({ code, message }: YamlFault): string {
  const known = BY_MESSAGE.find(([pattern]) => pattern.test(message))?.[1] ?? MESSAGES[code];
  // The parser quotes the file after a colon.
  return known ?? message.replace(/(?<=\S): .*$/s, '');
}

/** Matches an error about text after the end of the document. After another error, such text is the rest of the file. */
const AFTER_END = /token in YAML stream/;

/**
 * Returns the syntax errors that a person should read. The parser repeats an error for each bracket that is open there, and the first error of a line often
 * causes the others.
 */
export function firstFaults<T extends YamlFault & { readonly pos: readonly [number, number] }>(
  faults: readonly T[],
  lineOf: (offset: number) => number,
): readonly T[] {
  const lines = new Map<number, T>();
  for (const [index, fault] of faults.entries()) {
    if (index > 0 && AFTER_END.test(fault.message)) continue;
    const line = lineOf(fault.pos[0]);
    const before = lines.get(line);
    // Of these two at one place, the second says why: the text goes on in the next line.
    const isReason = fault.code === 'MULTILINE_IMPLICIT_KEY' && before?.pos[0] === fault.pos[0];
    if (before === undefined || isReason) lines.set(line, fault);
  }
  return [...lines.values()].slice(0, 3);
}
