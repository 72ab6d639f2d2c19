/** The fenced block of a page, and the text around it. */
export interface Block {
  readonly page: string;
  /** Number of the line that opens the fence, from 1. */
  readonly line: number;
  /** The text behind the opening fence, such as `sh` or `sh no-run`. */
  readonly info: string;
  /** The content without the indentation of the fence. */
  readonly text: string;
  /** The paragraphs directly before and after. */
  readonly before: string;
  readonly after: string;
}

/** Languages of blocks that are no commands. */
const DATA = new Set(['json', 'yaml', 'toml', 'promql', 'http']);
/** Programs that a shell block calls. A line that begins with one of them is a command. */
const PROGRAMS =
  /^\s*(?:[$#>] |sudo |(?:[A-Z_]+=\S* )*(?:npm|npx|node|linkspan|curl|docker|podman|kubectl|helm|claude|codex|gemini|code|git|openssl|systemctl|journalctl|apt|apt-get|pip|uvx?|cd|export|cp|mkdir|rm) )/;
/** The sentence that gives the reason why a block is not run. */
const REASON = /\bour tests do not run (?:this|these): [^.)]{10,}[.)]/i;

/** Returns the fenced blocks of a page in Markdown. @throws {Error} for a fence that is not closed. */
export function blocksOf(page: string, text: string): readonly Block[] {
  const lines = text.split('\n');
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; at++) {
    const [, indent = '', fence = '', info = ''] = /^(\s*)(`{3,}|~{3,})\s*(.*)$/.exec(lines[at] ?? '') ?? [];
    if (fence === '') continue;
    const end = lines.findIndex((line, index) => index > at && line.trim().startsWith(fence));
    if (end === -1) throw new Error(`${page}:${at + 1}: the fence is not closed`);
    blocks.push({
      page,
      line: at + 1,
      info: info.trim(),
      text: lines
        .slice(at + 1, end)
        .map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line))
        .join('\n'),
      before: paragraph(lines.slice(0, at).toReversed()).toReversed().join(' '),
      after: paragraph(lines.slice(end + 1)).join(' '),
    });
    at = end;
  }
  return blocks;
}

/** Returns the lines up to an empty one, after the empty lines at the beginning. */
function paragraph(lines: readonly string[]): readonly string[] {
  const from = lines.findIndex((line) => line.trim() !== '');
  if (from === -1) return [];
  const to = lines.findIndex((line, index) => index > from && line.trim() === '');
  return lines.slice(from, to === -1 ? undefined : to).map((line) => line.trim());
}

/** Returns true if the tests run the block. */
export function isRun(block: Block): boolean {
  return block.info === 'sh';
}

/** Returns the fault of a block's fence, or undefined. Commands stand in `sh`, or in `sh no-run` with a reason beside it. */
export function faultOf({ info, text, before, after }: Block): string | undefined {
  if (info === 'sh' || DATA.has(info)) return undefined;
  if (info === 'sh no-run') {
    return REASON.test(before) || REASON.test(after)
      ? undefined
      : 'the text beside it does not say "Our tests do not run this: <reason>."';
  }
  if (info !== '') return `"${info}" is not a language of ours; commands are "sh"`;
  return text.split('\n').some((line) => PROGRAMS.test(line)) ? 'a block with commands has to be "sh"' : undefined;
}

/** Returns the lines of a page that look like commands in an indented block, which no test would run. */
export function indentedCommands(text: string): readonly string[] {
  const fenced = new Set(blocksOf('', text).flatMap((block) => block.text.split('\n').map((line) => line.trim())));
  return text.split('\n').filter((line) => /^ {4}/.test(line) && PROGRAMS.test(line) && !fenced.has(line.trim()));
}
