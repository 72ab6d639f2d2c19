import { changedNumber } from '../../json/changed-number.ts';
import { isRecord, jsonOf, memberOf } from '../../json/record.ts';
import { COMMAND } from '../../command-name.ts';
import { didYouMean, suggest } from '../../config/document/suggest.ts';
import { catalogAnswer, toolCallAnswer, type ToolCallAnswer, upstreamsAnswer } from '../../operator/admin/answers.ts';
import { askGateway } from './admin-client.ts';
import { CliError, EXIT } from './cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { jsonText, print, printError } from './output.ts';
import type { PrintOptions } from './status.ts';
import { findGateway, type RunningGateway } from './running-gateway.ts';

export interface CallCommandOptions extends PrintOptions {
  /** The endpoint; default: the merged one. */
  readonly view?: string;
}

/** Longer than the longest `timeouts.max`, which is a day. */
const TIMEOUT_MS = 90_000_000;

/**
 * Calls a tool and prints its result; on stderr, as whom it was called. Resolves with 5 if the tool reports an error.
 *
 * @param args `name=value` pairs, or one JSON object.
 * @throws {CliError}
 */
export async function call(tool: string, args: readonly string[], options: CallCommandOptions): Promise<number> {
  const given = argumentsOf(args);
  const target = await findGateway(options);
  const answer = await askGateway(target, toolCallAnswer, {
    method: 'POST',
    path: '/call',
    body: { tool, arguments: given, view: options.view ?? '' },
    timeoutMs: TIMEOUT_MS,
  });
  if (options.json) print(jsonText(answer));
  else {
    printError(`called as ${oneLine(answer.as)}, ${answer.seconds.toFixed(2)} s\n`);
    if (answer.error === undefined) print(resultText(answer));
    else printError(`linkspan: ${oneLine(await failureText(answer.error, target, tool, options.view ?? ''))}\n`);
  }
  return codeOf(answer);
}

/**
 * Returns the message of a failure. It has the row of docs/errors.md if the gateway reports the failure, and the next step for a wrong
 * name.
 */
async function failureText(
  { message, data }: NonNullable<ToolCallAnswer['error']>,
  target: RunningGateway,
  tool: string,
  view: string,
): Promise<string> {
  const row: unknown = Object(data).code;
  if (typeof row !== 'string') return message;
  if (row !== 'unknown-tool') return `${message} (${row})`;
  // The advice must not hide the answer.
  const advice = await nameAdvice(target, tool, view).catch(() => `"${COMMAND} ls items" lists the names`);
  return `${message} (${row}); ${advice}`;
}

/** Returns where the names of tools are, and one that is similar to a wrong one. */
async function nameAdvice(target: RunningGateway, tool: string, view: string): Promise<string> {
  const query = new URLSearchParams({ view });
  const [{ upstreams }, { items }] = await Promise.all([
    askGateway(target, upstreamsAnswer, { path: '/upstreams' }),
    askGateway(target, catalogAnswer, { path: `/catalog?${query.toString()}` }),
  ]);
  const ofCallers = upstreams.filter(({ isForCallers }) => isForCallers).map(({ id }) => `"${id}"`);
  const without = ofCallers.length === 0 ? '' : `, except of ${ofCallers.join(', ')}, whose lists depend on the caller`;
  const names = items.flatMap(({ kind, status, name }) => (kind === 'tool' && PUBLISHED.has(status) ? [name] : []));
  return `"${COMMAND} ls items" lists the names${without}${didYouMean(suggest(tool, names))}`;
}

const PUBLISHED: ReadonlySet<string> = new Set(['published', 'repaired']);

function codeOf({ outcome }: ToolCallAnswer): number {
  if (outcome === 'result') return EXIT.ok;
  return outcome === 'tool-error' ? EXIT.toolError : EXIT.failed;
}

/** Returns the arguments of a tool: one JSON object, or pairs whose values are JSON if they parse as JSON, else text. */
export function argumentsOf(args: readonly string[]): Record<string, unknown> {
  const [first] = args;
  if (args.length === 1 && first?.trimStart().startsWith('{') === true) {
    const value = exactJsonOf(first);
    if (isRecord(value)) return { ...value };
    throw new CliError(EXIT.usage, 'the arguments are no JSON object; write one, or name=value for each');
  }
  const pairs = args.map((arg): [string, unknown] => {
    const at = arg.indexOf('=');
    if (at < 1) throw new CliError(EXIT.usage, `expected name=value or one JSON object, got ${JSON.stringify(arg)}`);
    const text = arg.slice(at + 1);
    const value = exactJsonOf(text);
    return [arg.slice(0, at), value === undefined ? text : value];
  });
  return Object.fromEntries(pairs);
}

/** As {@link jsonOf}. @throws {CliError} if a number would be sent as another one. */
function exactJsonOf(text: string): unknown {
  const value = jsonOf(text);
  const changed = value === undefined ? undefined : changedNumber(text);
  if (changed === undefined) return value;
  const message = `the number ${changed} would be sent as ${Number(changed)}; send it as text, such as name='"${changed}"'`;
  throw new CliError(EXIT.usage, message);
}

/** Returns the texts of a result; the whole result as JSON if it has other content. */
function resultText({ result, resultText: exact }: ToolCallAnswer): string {
  const content = memberOf(result, 'content');
  const whole = exact === undefined ? jsonText(result) : `${exact}\n`;
  if (!Array.isArray(content) || content.length === 0) return whole;
  const texts = content.map((part: unknown) => memberOf(part, 'text'));
  if (!texts.every((text) => typeof text === 'string')) return whole;
  // Line breaks are the tool's own; other control characters could change the terminal.
  return `${texts.map((text) => text.split('\n').map(oneLine).join('\n')).join('\n')}\n`;
}
