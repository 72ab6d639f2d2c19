import { severityOf } from './line-severity.ts';

/** Lines that never say why a program ended: brackets, frames and positions of a stack, versions, and pointers to logs and help. */
const NOISE: readonly RegExp[] = [
  /^[\s()[\]{}<>^~|;,.'"`-]*$/,
  /^\s*(?:at |File "|from \S+:\d+|\.\.\. \d+ more)/,
  /^\S+:\d+(?: \+0x[\da-f]+)?$/,
  /^\s+\S+:\d+ \+0x[\da-f]+$/,
  /^goroutine \d+/,
  /^Node\.js v\d/,
  /^note: run with `RUST_BACKTRACE/,
  /^(?:Run|See|Try) .*--help/,
  /\.log$/,
];

/** A line of npm's own, with its text. */
const NPM = /^npm (?:error|ERR!) *(.*)$/;
/** Lines of npm with the circumstances of an error, or without text. */
const NPM_NOISE = /^$|^\d+$|^(?:code|errno|syscall|path|dest|file|command|signal|cwd) |^A complete log/;

/** The first line of an error with its stack: `TypeError: …`, `Error [ERR_X]: …`, `a.b.SomeException: …`. */
const THROWN = /^\W*(?:[\w$]+[.:]+)*[\w$]*(?:Error|Exception|Panic)(?: \[\w+\])?:/;

/**
 * Other forms of errors. They are those of Java and .NET, of programs that name themselves first, and causes in lines of their own (uv and
 * Rust).
 */
const OTHER_FORMS: readonly RegExp[] = [
  /^Exception in thread /,
  /^Unhandled exception/i,
  /^[\w.-]+: error\b/i,
  /^\s*(?:cause|caused by): ./i,
  /^\s*╰─▶ /,
];

/**
 * Returns the line of stderr that most likely says why a program ended. It is the error of npm, the latest error, or else the latest line
 * that says anything. Undefined if there is none.
 */
export function tellingLine(lines: readonly string[]): string | undefined {
  const isNpm = NPM.test(lines.at(-1) ?? '');
  const npm = isNpm ? npmError(lines) : undefined;
  if (npm?.code !== undefined) return npm.text;
  const others = lines.filter((line) => !NPM.test(line) && !NOISE.some((form) => form.test(line)));
  const found = others.findLast(isErrorLine) ?? npm?.text ?? others.at(-1);
  return found === undefined ? undefined : completed(found, lines);
}

/** Returns the error that npm has printed, with its code unless only a script has failed; undefined if it says nothing. */
function npmError(lines: readonly string[]): { readonly code: string | undefined; readonly text: string } | undefined {
  const texts = lines.map((line) => NPM.exec(line)?.[1]).filter((text) => text !== undefined);
  const code = texts.map((text) => /^code (E(?!LIFECYCLE)\w+)$/.exec(text)?.[1]).find((found) => found !== undefined);
  const says = texts.find((text) => !NPM_NOISE.test(text));
  if (says === undefined) return undefined;
  return { code, text: `npm error${code === undefined ? '' : ` ${code}`}: ${says}` };
}

/** Returns whether a line of stderr looks like the message of an error. */
function isErrorLine(line: string): boolean {
  if (THROWN.test(line) || OTHER_FORMS.some((form) => form.test(line))) return true;
  // The error follows the stack.
  if (line.startsWith('Traceback')) return false;
  const severity = severityOf(line);
  return severity === 'error' || severity === 'critical';
}

/** Returns a line without spaces around it. If it ends with an open bracket, its message comes from a later line. */
function completed(line: string, lines: readonly string[]): string {
  const text = line.trim();
  if (!/[([{]$/.test(text)) return text;
  const later = lines.slice(lines.lastIndexOf(line) + 1);
  const message = later.find((one) => /\bmessage["']?\s*[:=]/.test(one)) ?? '';
  return `${text.slice(0, -1).trimEnd()} ${message.trim().replace(/,$/, '')}`.trim();
}
