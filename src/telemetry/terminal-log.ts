import { isRecord, jsonOf } from '../json/record.ts';
import { oneLine, shownText } from '../peer-text.ts';
import { RepeatedEvents } from './repeated-events.ts';

/** Text styles, by the names of `util.styleText`. */
export type Style = 'bold' | 'dim' | 'green' | 'red' | 'yellow';

/** The terminal that shows the log. */
export interface Terminal {
  readonly write: (text: string) => void;
  readonly paint: (style: Style, text: string) => string;
  readonly now: () => number;
  /** Shows repeated lines too, each at once, and what a process has printed on stderr. Default: false, for those who watch the log. */
  readonly showsAll?: boolean;
}

/** A label and its text. */
type Row = [string, string];

type Fields = Readonly<Record<string, unknown>>;

/** An upstream that takes longer to start is shown as starting. */
const SLOW_START_MS = 3_000;

/** The time that the line of an upstream that serves waits for the number of its tools, whose lists come a moment later. */
const LISTS_MS = 1_500;

/** An upstream that serves is shown if nothing has changed for this long since a change that was not shown. */
const QUIET_MS = 60_000;

/** A longer detail is shown at `/status` only. */
const MAX_DETAIL_CHARS = 160;

/** Longest line, because upstreams choose their reasons. */
const MAX_CHARS = 1_000;

/** Fields that are not shown, because every line has them or shows them elsewhere. */
const UNSHOWN = new Set(['level', 'time', 'pid', 'msg', 'err', 'file', 'upstream']);

/** Fields that are parts of the text of an error as well. */
const OF_ERROR = new Set(['message', 'advice']);

/** The `name` of every line. For a quarantined list item the field holds the item's name instead. */
const PROGRAM = 'linkspan';

const LOST = 'upstream process lost';
/** Messages without a line: the line of the upstream's state tells the same with its reason, or only `linkspan status` tells it. */
const UNSHOWN_MESSAGES = new Set(['upstream did not start', 'upstream connection lost', LOST, 'era of the upstream']);

/** The messages of the lines about messages of clients. */
const REQUESTS = new Set(['request', 'notification', 'response']);

const INFO = 30;
const WARN = 40;

/** Shows pino's JSON log lines to a person: one line each, and repeated failures as one line with a count. */
export class TerminalLog {
  readonly #terminal: Terminal;
  readonly #repeats = new RepeatedEvents();
  /** The lines of states that are shown unless another state comes first. */
  readonly #waiting = new Map<string, NodeJS.Timeout>();
  /** The upstreams that serve. */
  readonly #ready = new Set<string>();
  /** The number of tools that each upstream offers, by its latest lists. */
  readonly #tools = new Map<string, number>();
  /** The state that was shown last, by upstream. */
  readonly #shown = new Map<string, string>();

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** Shows log lines. @param text JSON lines, each with its line break. */
  write(text: string): void {
    for (const line of text.split('\n')) {
      if (line === '') continue;
      const fields = fieldsOf(line);
      if (fields === undefined) this.#show(plain(line));
      else this.#render(fields);
    }
  }

  #render(fields: Fields): void {
    const message = textOf(fields['msg']);
    const isWarning = Number(fields['level']) >= WARN;
    if (message === 'listening') this.#banner(fields);
    else if (message === 'upstream state') this.#state(fields);
    else if (message === 'upstream lists') this.#lists(fields);
    else if (message === 'processes of upstreams') this.#processes(fields);
    else if (REQUESTS.has(message)) this.#request(message, fields);
    else if (message === 'stopping') this.#show('Stopping; once more to stop at once.');
    else if (message === 'stopped') this.#show('Stopped.');
    else if (message === LOST && this.#terminal.showsAll === true) this.#lost(fields);
    else if (!UNSHOWN_MESSAGES.has(message)) this.#message(message, fields, isWarning);
  }

  #banner(fields: Fields): void {
    const { paint } = this.#terminal;
    const { version, url, operatorUrl, upstreams, eager, auth, sessionsOfAllClients, lastGoodAt, lock } = fields;
    const header = auth === true ? ' --header "Authorization: Bearer <key>"' : '';
    const names = namesIn(upstreams);
    const [started, all] = [namesIn(eager), names.length];
    const others = started.length === 0 ? '' : `; at the start ${started.join(', ')}`;
    const rows: Row[] = [
      ['Clients', paint('bold', String(url))],
      ['Connect', `claude mcp add --transport http linkspan ${String(url)}${header}`],
      ['', 'or the URL in any client with Streamable HTTP'],
      ...(typeof sessionsOfAllClients === 'number'
        ? [['Keys', `none needed; all clients together may open ${sessionsOfAllClients} sessions`] satisfies Row]
        : []),
      ['Upstreams', names.length === 0 ? 'none' : names.join(', ')],
      ...(started.length === all ? [] : [['', `each starts when a client first needs it${others}`] satisfies Row]),
      ...(typeof lastGoodAt === 'string'
        ? [['', paint('red', `those of ${plain(lastGoodAt)}, because the config file is broken`)] satisfies Row]
        : []),
      ...(typeof lock === 'string' ? [['Lock', plain(lock)] satisfies Row] : []),
      ['Status', operatorUrl === undefined ? 'no port for it' : `${textOf(operatorUrl)}/status`],
    ];
    const lines = rows.map(([label, text]) => `  ${paint('dim', label.padEnd(10))} ${text}`);
    this.#show(
      ['', `${paint('bold', 'Linkspan')} ${String(version)}`, '', ...lines, '', '  Ctrl-C stops it.', ''].join('\n'),
    );
  }

  #state(fields: Fields): void {
    const upstream = String(fields['upstream']);
    const phase = String(fields['phase']);
    clearTimeout(this.#waiting.get(upstream));
    this.#waiting.delete(upstream);
    if (phase === 'ready') this.#ready.add(upstream);
    else this.#ready.delete(upstream);
    if (phase === 'starting') {
      this.#showLater(upstream, SLOW_START_MS, () => this.#show(this.#stateLine(upstream, 'starting', '')));
    } else if (phase === 'ready') {
      const showReady = () => this.#showReady(upstream, 'ready');
      if (this.#tools.has(upstream)) showReady();
      else this.#showLater(upstream, LISTS_MS, showReady);
    } else if (phase !== 'stopped') this.#showState(upstream, phase, reasonOf(fields));
  }

  #showLater(upstream: string, delayMs: number, show: () => void): void {
    if (this.#terminal.showsAll === true) return show();
    const timer = setTimeout(() => {
      this.#waiting.delete(upstream);
      show();
    }, delayMs).unref();
    this.#waiting.set(upstream, timer);
  }

  /** Shows how many tools an upstream has, once it serves. Changes are shown at growing intervals, and the last one of several. */
  #lists({ upstream, tools: listed, offeredTools: tools = listed }: Fields): void {
    if (typeof upstream !== 'string' || typeof tools !== 'number' || this.#tools.get(upstream) === tools) return;
    const event = this.#tools.has(upstream) ? 'tools' : 'ready';
    this.#tools.set(upstream, tools);
    if (!this.#ready.has(upstream)) return;
    clearTimeout(this.#waiting.get(upstream));
    this.#waiting.delete(upstream);
    this.#showReady(upstream, event);
  }

  /** Shows that an upstream serves, and its number of tools: later if no line is due now. */
  #showReady(upstream: string, event: string): void {
    const why = toolsText(this.#tools.get(upstream));
    if (this.#showState(upstream, 'ready', why, event)) return;
    this.#showLater(upstream, QUIET_MS, () => {
      if (this.#shown.get(upstream) !== `ready ${why}`) this.#showLine(upstream, 'ready', why);
    });
  }

  /** Shows a state: a repeated one with its count, at growing intervals. Returns whether it was shown. */
  #showState(upstream: string, phase: string, why: string, event = phase): boolean {
    const due = this.#due(`${upstream} ${event}`, why);
    if (due !== undefined) this.#showLine(upstream, phase, why, due);
    return due !== undefined;
  }

  #showLine(upstream: string, phase: string, why: string, count = 0): void {
    this.#shown.set(upstream, `${phase} ${why}`);
    this.#show(this.#stateLine(upstream, phase, why, count));
  }

  #stateLine(upstream: string, phase: string, why: string, count = 0): string {
    const { paint } = this.#terminal;
    const [mark, style] = MARKS.get(phase) ?? ['·', 'dim'];
    const separator = phase === 'ready' ? ', ' : ': ';
    const rest = plain(`${phase}${why === '' ? '' : `${separator}${why}`}${timesText(count)}`);
    return `  ${paint(style, mark)} ${plain(upstream).padEnd(16)} ${rest}`;
  }

  #lost({ upstream, reason, stderr }: Fields): void {
    const { paint } = this.#terminal;
    const lines = typeof stderr === 'string' ? stderr.split('\n').filter((line) => line !== '') : [];
    const block = lines.map((line) => `\n    ${paint('dim', '|')} ${plain(line)}`).join('');
    const what = lines.length === 0 ? 'It printed nothing on stderr.' : 'On stderr:';
    this.#show(`${paint('yellow', '!')} ${plain(`${textOf(upstream)}: ${textOf(reason)}. ${what}`)}${block}`);
  }

  #processes({ processes, memoryBytes, byUpstream }: Fields): void {
    const { paint } = this.#terminal;
    /** The upstreams that each advice is for. */
    const advised = new Map<string, string[]>();
    const upstreams = Object.entries(Object(byUpstream)).map(([id, one]) => {
      const { processes: count, memoryBytes: bytes, memoryNote, advice }: Fields = Object(one);
      const memory = typeof bytes === 'number' ? megabytes(bytes) : `memory ${textOf(memoryNote)}`;
      if (typeof advice === 'string') advised.set(advice, [...(advised.get(advice) ?? []), id]);
      return `${id} ${textOf(count)} (${memory})`;
    });
    const all = `${textOf(processes)} in all, ${megabytes(Number(memoryBytes))}, of them ${upstreams.join(', ')}`;
    const advice = [...advised].map(([text, ids]) => `; ${ids.join(', ')}: ${text}`).join('');
    this.#show(`  ${paint('dim', '·')} ${plain(`${'processes'.padEnd(16)} ${all}${advice}`)}`);
  }

  #request(kind: string, fields: Fields): void {
    const { method, tool, ms, error, reason, client } = fields;
    const target = tool === undefined ? '' : ` ${textOf(tool)}`;
    const duration = ms === undefined ? '' : ` in ${Math.round(Number(ms))} ms`;
    const why = reason === undefined ? '' : `: ${textOf(reason)}`;
    const outcome = error === undefined ? '' : `, ${textOf(error)}${why}`;
    const sender = client === undefined ? '' : ` (${textOf(client)})`;
    this.#show(plain(`  ${method === undefined ? kind : textOf(method)}${target}${duration}${outcome}${sender}`));
  }

  #message(message: string, fields: Fields, isWarning: boolean): void {
    const { paint } = this.#terminal;
    const upstream = fields['upstream'];
    const error = errorText(fields['err']);
    const shown = Object.entries(fields)
      .map(([key, value]) => [key, listText(value)] as const)
      .filter(
        ([key, value]) =>
          !UNSHOWN.has(key) && value !== PROGRAM && (typeof value === 'string' || typeof value === 'number'),
      )
      // The text of the error ends with the message and the advice for the client.
      .filter(([key, value]) => !OF_ERROR.has(key) || error?.message.includes(String(value)) !== true)
      // The lines of a reason are problems of their own, such as those of a config file.
      .map(([key, value]) => (key === 'reason' ? String(value).replaceAll('\n', '; ') : `${key} ${String(value)}`));
    const times = this.#times(message, fields, error?.message);
    if (times === undefined) return;
    const parts = [...(error === undefined ? [] : [error.message]), ...shown];
    const who = typeof upstream === 'string' ? `${upstream}: ` : '';
    const text = plain(`${who}${message}${parts.length === 0 ? '' : `: ${parts.join(', ')}`}${timesText(times)}`);
    const stack = error?.stack === undefined ? '' : `\n${error.stack.split('\n').map(plain).join('\n')}`;
    this.#show(isWarning ? `${paint('yellow', '!')} ${text}${stack}` : `${text}${stack}`);
  }

  /** Returns how often a failure of an upstream happened since its last line; undefined if no line is due. 0 for other messages. */
  #times(message: string, fields: Fields, error: string | undefined): number | undefined {
    const { upstream, reason, level } = fields;
    const why = typeof reason === 'string' ? reason : error;
    if (typeof upstream !== 'string' || why === undefined || Number(level) < INFO) return 0;
    return this.#due(`${upstream} ${message}`, why);
  }

  #due(key: string, reason: string): number | undefined {
    return this.#terminal.showsAll === true ? 0 : this.#repeats.due(key, reason, this.#terminal.now());
  }

  #show(line: string): void {
    this.#terminal.write(`${line}\n`);
  }
}

const MARKS: ReadonlyMap<string, readonly [string, Style]> = new Map([
  ['ready', ['✓', 'green']],
  ['failed', ['✗', 'red']],
  ['needs-authorization', ['✗', 'red']],
  ['degraded', ['!', 'yellow']],
  ['starting', ['·', 'dim']],
]);

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function namesIn(list: unknown): readonly string[] {
  return Array.isArray(list) ? list.map((name) => plain(String(name))) : [];
}

/** Returns a list of texts as one text, and any other value as it is. */
function listText(value: unknown): unknown {
  return Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === 'string')
    ? value.join('; ')
    : value;
}

function timesText(count: number): string {
  return count > 1 ? ` (${count} times)` : '';
}

function toolsText(tools: number | undefined): string {
  if (tools === undefined) return '';
  return tools === 1 ? '1 tool' : `${tools} tools`;
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1_000_000)} MB`;
}

function fieldsOf(line: string): Fields | undefined {
  const value = jsonOf(line);
  return isRecord(value) ? value : undefined;
}

/** Returns the reason of a state, with its detail if that is short and different. */
function reasonOf({ reason, detail }: Fields): string {
  const first = typeof reason === 'string' ? reason : '';
  const isWorthIt = typeof detail === 'string' && detail !== first && detail.length <= MAX_DETAIL_CHARS;
  return isWorthIt ? `${first} (${detail})` : first;
}

function errorText(err: unknown): { readonly message: string; readonly stack: string | undefined } | undefined {
  if (typeof err !== 'object' || err === null || !('message' in err)) return undefined;
  const causes = 'causes' in err && Array.isArray(err.causes) ? err.causes.map(String) : [];
  const message = [String(err.message), ...causes].filter((text, i, all) => all.indexOf(text) === i).join(': ');
  return { message, stack: 'stack' in err && typeof err.stack === 'string' ? err.stack : undefined };
}

/** Returns a text on one line, so that text of a peer cannot move the cursor or change colours. */
function plain(text: string): string {
  return shownText(oneLine(text.slice(0, MAX_CHARS + 1)), MAX_CHARS);
}
