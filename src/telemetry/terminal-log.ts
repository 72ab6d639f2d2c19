import { Repeats } from './repeats.ts';

/** Text styles, by the names of `util.styleText`. */
export type Style = 'bold' | 'dim' | 'green' | 'red' | 'yellow';

/** The terminal that shows the log. */
export interface Terminal {
  readonly write: (text: string) => void;
  readonly paint: (style: Style, text: string) => string;
  /** Undefined if the cursor cannot be moved. */
  readonly columns: number | undefined;
  readonly now: () => number;
}

/** A label and its text. */
type Row = [string, string];

type Fields = Readonly<Record<string, unknown>>;

/** An upstream that takes longer to start is shown as starting. */
const SLOW_START_MS = 3_000;

/** A longer detail is shown at `/status` only. */
const MAX_DETAIL_CHARS = 160;

/** Longest line, because upstreams choose their reasons. */
const MAX_CHARS = 1_000;

/** Fields that are not shown, because every line has them or shows them elsewhere. */
const UNSHOWN = new Set(['level', 'time', 'pid', 'msg', 'err', 'file', 'upstream']);

/** The `name` of every line. For a quarantined list item the field holds the item's name instead. */
const PROGRAM = 'linkspan';

/** Messages that are not shown, because the state of the upstream tells the same with its reason. */
const SHOWN_BY_STATE = new Set(['upstream did not start', 'upstream connection lost', 'upstream process lost']);

/** The messages of the lines about messages of clients. */
const REQUESTS = new Set(['request', 'notification', 'response']);

const INFO = 30;
const WARN = 40;

/** Shows pino's JSON log lines to a person: one line each, and repeated failures as one line with a count. */
export class TerminalLog {
  readonly #terminal: Terminal;
  readonly #repeats = new Repeats();
  readonly #starting = new Map<string, NodeJS.Timeout>();
  /** The latest state of each upstream, and how often it occurred in a row. */
  readonly #counts = new Map<string, { text: string; count: number }>();
  /** The upstream whose state is the last line on the terminal, if that line can be overwritten. */
  #last: string | undefined;

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
    else if (message === 'processes of upstreams') this.#processes(fields);
    else if (REQUESTS.has(message)) this.#request(message, fields);
    else if (message === 'stopping') this.#show('Stopping; once more to stop at once.');
    else if (message === 'stopped') this.#show('Stopped.');
    else if (!SHOWN_BY_STATE.has(message)) this.#message(message, fields, isWarning);
  }

  #banner(fields: Fields): void {
    const { paint } = this.#terminal;
    const { version, url, operatorUrl, upstreams, auth, lastGoodAt } = fields;
    const header = auth === true ? ' --header "Authorization: Bearer <key>"' : '';
    const names = Array.isArray(upstreams) ? upstreams.map((name) => plain(String(name))) : [];
    const rows: Row[] = [
      ['Clients', paint('bold', String(url))],
      ['Connect', `claude mcp add --transport http linkspan ${String(url)}${header}`],
      ['', 'or the URL in any client with Streamable HTTP'],
      ['Upstreams', names.length === 0 ? 'none' : names.join(', ')],
      ['', 'each starts when a client first needs it'],
      ...(typeof lastGoodAt === 'string'
        ? [['', paint('red', `those of ${plain(lastGoodAt)}, because the config file is broken`)] satisfies Row]
        : []),
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
    clearTimeout(this.#starting.get(upstream));
    this.#starting.delete(upstream);
    if (phase === 'starting') {
      const timer = setTimeout(() => this.#show(this.#stateLine(upstream, 'starting', '')), SLOW_START_MS).unref();
      this.#starting.set(upstream, timer);
      return;
    }
    if (phase === 'stopped') return;
    this.#showState(upstream, phase, reasonOf(fields));
  }

  /**
   * Shows a state. Counts equal states in a row: overwrites the last line if it shows the same state, else writes a
   * line at growing intervals.
   */
  #showState(upstream: string, phase: string, why: string): void {
    const like = `${phase} ${why.replace(/\d+/g, '#')}`;
    const known = this.#counts.get(upstream);
    const count = known?.text === like ? known.count + 1 : 1;
    this.#counts.set(upstream, { text: like, count });
    const due = this.#repeats.due(`${upstream} ${phase}`, why, this.#terminal.now());
    const line = this.#stateLine(upstream, phase, why, count);
    const fits = line.width < (this.#terminal.columns ?? 0);
    if (count > 1 && this.#last === upstream && fits) {
      this.#terminal.write(`\u001B[1A\r\u001B[2K${line.text}\n`);
    } else if (due !== undefined) {
      this.#terminal.write(`${line.text}\n`);
    } else return;
    this.#last = fits ? upstream : undefined;
  }

  #stateLine(
    upstream: string,
    phase: string,
    why: string,
    count = 1,
  ): { readonly text: string; readonly width: number } {
    const { paint } = this.#terminal;
    const [mark, style] = MARKS.get(phase) ?? ['·', 'dim'];
    const rest = plain(`${phase}${why === '' ? '' : `: ${why}`}${count > 1 ? ` (${count} times)` : ''}`);
    const name = plain(upstream).padEnd(16);
    return { text: `  ${paint(style, mark)} ${name} ${rest}`, width: 5 + name.length + rest.length };
  }

  #processes({ processes, memoryBytes, byUpstream }: Fields): void {
    const { paint } = this.#terminal;
    const upstreams = Object.entries(Object(byUpstream)).map(([id, one]) => {
      const { processes: count, memoryBytes: bytes, memoryNote, advice }: Fields = Object(one);
      const memory = typeof bytes === 'number' ? megabytes(bytes) : `memory ${textOf(memoryNote)}`;
      return `${id} ${textOf(count)} (${memory}${typeof advice === 'string' ? `; ${advice}` : ''})`;
    });
    const all = `${textOf(processes)} in all, ${megabytes(Number(memoryBytes))}`;
    this.#show(`  ${paint('dim', '·')} ${plain(`${'processes'.padEnd(16)} ${all}: ${upstreams.join(', ')}`)}`);
  }

  #request(kind: string, fields: Fields): void {
    const { method, tool, ms, error, client } = fields;
    const target = tool === undefined ? '' : ` ${textOf(tool)}`;
    const duration = ms === undefined ? '' : ` in ${Math.round(Number(ms))} ms`;
    const outcome = error === undefined ? '' : `, ${textOf(error)}`;
    const sender = client === undefined ? '' : ` (${textOf(client)})`;
    this.#show(plain(`  ${method === undefined ? kind : textOf(method)}${target}${duration}${outcome}${sender}`));
  }

  #message(message: string, fields: Fields, isWarning: boolean): void {
    const { paint } = this.#terminal;
    const upstream = fields['upstream'];
    const shown = Object.entries(fields)
      .filter(
        ([key, value]) =>
          !UNSHOWN.has(key) && value !== PROGRAM && (typeof value === 'string' || typeof value === 'number'),
      )
      .map(([key, value]) => (key === 'reason' ? String(value) : `${key} ${String(value)}`));
    const error = errorText(fields['err']);
    const times = this.#times(message, fields, error?.message);
    if (times === undefined) return;
    const parts = [...(error === undefined ? [] : [error.message]), ...shown];
    const who = typeof upstream === 'string' ? `${upstream}: ` : '';
    const count = times > 1 ? ` (${times} times)` : '';
    const text = plain(`${who}${message}${parts.length === 0 ? '' : `: ${parts.join(', ')}`}${count}`);
    const stack = error?.stack === undefined ? '' : `\n${error.stack.split('\n').map(plain).join('\n')}`;
    this.#show(isWarning ? `${paint('yellow', '!')} ${text}${stack}` : `${text}${stack}`);
  }

  /** Returns how often a failure of an upstream happened since its last line; undefined if no line is due. 1 for other messages. */
  #times(message: string, fields: Fields, error: string | undefined): number | undefined {
    const { upstream, reason, level } = fields;
    const why = typeof reason === 'string' ? reason : error;
    if (typeof upstream !== 'string' || why === undefined || Number(level) < INFO) return 1;
    const due = this.#repeats.due(`${upstream} ${message}`, why, this.#terminal.now());
    return due === undefined ? undefined : due + 1;
  }

  #show(line: string | { readonly text: string }): void {
    this.#terminal.write(`${typeof line === 'string' ? line : line.text}\n`);
    this.#last = undefined;
  }
}

const MARKS: ReadonlyMap<string, readonly [string, Style]> = new Map([
  ['ready', ['✓', 'green']],
  ['failed', ['✗', 'red']],
  ['degraded', ['!', 'yellow']],
  ['starting', ['·', 'dim']],
]);

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1_000_000)} MB`;
}

function fieldsOf(line: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return undefined;
    throw thrown;
  }
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

/** Removes control characters, so that text of a peer cannot move the cursor or change colours. */
function plain(text: string): string {
  const clean = text.replace(/[\p{Cc}\u202A-\u202E\u2066-\u2069]+/gu, ' ');
  return clean.length > MAX_CHARS ? `${clean.slice(0, MAX_CHARS)}…` : clean;
}
