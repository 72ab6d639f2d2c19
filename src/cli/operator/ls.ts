import { COMMAND } from '../../command-name.ts';
import * as answers from '../../operator/admin/answers.ts';
import { askGateway } from './admin-client.ts';
import { EXIT } from './cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { countText, durationText, jsonText, print, table, unansweredText } from './output.ts';
import { type PrintOptions, upstreamTable } from './status.ts';
import { findGateway, type RunningGateway } from './running-gateway.ts';
import { endpointPath } from '../../endpoint-path.ts';

/** The lists that `linkspan ls` prints. */
export type List = 'upstreams' | 'items' | 'clients' | 'sessions' | 'streams' | 'calls' | 'config';

export interface LsOptions extends PrintOptions {
  /** The endpoint of `items`. */
  readonly view?: string;
  /** The only upstream of `items`. */
  readonly upstream?: string;
  readonly era?: string;
}

/** A list as its answer, and for people. */
interface Printed {
  readonly answer: unknown;
  readonly text: string;
}

/** Prints one list of the running gateway. @throws {CliError} */
export async function ls(list: List, options: LsOptions): Promise<number> {
  const target = await findGateway(options, process.cwd(), process.env);
  const { answer, text } = await READERS[list](target, options);
  print(options.json ? jsonText(answer) : text);
  return EXIT.ok;
}

const CUT = 'There are more; --json has no more either. Narrow the list with its options.\n';

/** Returns rows as a table with its headings, or a sentence if there are none. */
function titled(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  none: string,
  isCut = false,
): string {
  if (rows.length === 0) return `${none}\n`;
  return `${table([headings, ...rows.map((row) => row.map(oneLine))])}${isCut ? CUT : ''}`;
}

/** Returns the reason why an endpoint has no items, as far as its upstreams show it. @param only the upstream that was asked for. */
async function whyNoItems(target: RunningGateway, only: string | undefined): Promise<string> {
  const { upstreams } = await askGateway(target, answers.upstreamsAnswer, { path: '/upstreams' });
  const asked = upstreams.filter(({ id }) => only === undefined || id === only);
  const ofCallers = asked.filter(({ isForCallers }) => isForCallers).map(({ id }) => `"${id}"`);
  if (ofCallers.length > 0) return `The lists of ${ofCallers.join(', ')} depend on the caller, and are not known here.`;
  if (asked.some(({ isListed, state }) => !isListed && state === 'configured'))
    return `Nothing was listed yet. The first client starts the upstreams, or "${COMMAND} prefetch" does.`;
  return `This endpoint has no items. "${COMMAND} ls upstreams" says whether its upstreams are up.`;
}

/** A row of a list, with the name of its replica if there are several. */
interface Placed {
  readonly replica?: string | undefined;
}

/** Returns the items of all replicas as {@link titled} does, with a column for their replicas if there are several. */
function placed<Item extends Placed>(
  headings: readonly string[],
  items: readonly Item[],
  cellsOf: (item: Item) => readonly string[],
  none: string,
  { isCut, unanswered }: { readonly isCut?: boolean; readonly unanswered?: Parameters<typeof unansweredText>[0] },
): string {
  const hasSeveral = items.some(({ replica }) => replica !== undefined);
  const rows = items.map((item) => [...cellsOf(item), ...(hasSeveral ? [item.replica ?? ''] : [])]);
  const titles = hasSeveral ? [...headings, 'REPLICA'] : headings;
  return `${titled(titles, rows, none, isCut)}${unansweredText(unanswered)}`;
}

const READERS: Readonly<Record<List, (target: RunningGateway, options: LsOptions) => Promise<Printed>>> = {
  upstreams: async (target) => {
    const answer = await askGateway(target, answers.upstreamsAnswer, { path: '/upstreams' });
    return { answer, text: `${upstreamTable(answer.upstreams)}${unansweredText(answer.unanswered)}` };
  },
  items: async (target, { view, upstream, era }) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ view, upstream, era }))
      if (value !== undefined) query.set(name, value);
    const answer = await askGateway(target, answers.catalogAnswer, { path: `/catalog?${query.toString()}` });
    const rows = answer.items.map(({ kind, name, upstream: id, upstreamName = '', status, why = '' }) => [
      kind,
      name,
      upstreamName === name ? id : `${id}: ${upstreamName}`,
      status,
      why,
    ]);
    const none = rows.length > 0 ? '' : await whyNoItems(target, upstream);
    return { answer, text: titled(['KIND', 'NAME', 'FROM', 'STATUS', 'WHY'], rows, none, answer.isCut) };
  },
  clients: async (target) => {
    const answer = await askGateway(target, answers.clientsAnswer, { path: '/clients' });
    const headings = ['CLIENT', 'REVISION', 'AS', 'TIMES', 'LAST SEEN', 'DECLARES'];
    const cellsOf = (one: (typeof answer.clients)[number]) => [
      `${one.name} ${one.version}`.trim(),
      one.revision,
      one.principal,
      String(one.connections),
      one.lastSeenAt,
      one.capabilities.join(', '),
    ];
    return {
      answer,
      text: placed(headings, answer.clients, cellsOf, 'No client has connected since the start.', answer),
    };
  },
  sessions: async (target) => {
    const answer = await askGateway(target, answers.sessionsAnswer, { path: '/sessions' });
    const headings = ['ID', 'KIND', 'CLIENT', 'AS', 'ENDPOINT', 'IN FLIGHT', 'STREAMS', 'UPSTREAMS', 'IDLE'];
    const cellsOf = (one: (typeof answer.sessions)[number]) => [
      one.id,
      one.kind,
      one.client ?? '-',
      one.principal,
      endpointPath(one.view),
      countText(one.requestsInFlight, 'request'),
      countText(one.streams, 'stream'),
      one.upstreams.join(', '),
      durationText(one.idleSeconds),
    ];
    return { answer, text: placed(headings, answer.sessions, cellsOf, 'No session is in memory.', answer) };
  },
  streams: async (target) => {
    const answer = await askGateway(target, answers.streamsAnswer, { path: '/streams' });
    const headings = ['SESSION', 'KIND', 'COUNT', 'AS', 'ENDPOINT'];
    const cellsOf = (one: (typeof answer.streams)[number]) => [
      one.session,
      one.kind,
      String(one.count),
      one.principal,
      endpointPath(one.view),
    ];
    return { answer, text: placed(headings, answer.streams, cellsOf, 'No stream is open.', answer) };
  },
  calls: async (target) => {
    const answer = await askGateway(target, answers.callsAnswer, { path: '/calls' });
    const headings = ['STATE', 'CALL', 'UPSTREAM', 'AS', 'SESSION', 'FOR'];
    const cellsOf = (one: (typeof answer.calls)[number]) => [
      one.state,
      one.tool ?? one.method,
      one.upstream ?? '',
      one.principal,
      one.session,
      durationText(one.seconds),
    ];
    return { answer, text: placed(headings, answer.calls, cellsOf, 'No request is in flight.', answer) };
  },
  config: async (target) => {
    const answer = await askGateway(target, answers.configAnswer, { path: '/config' });
    const rows = answer.settings.map(({ key, value, origin, place }) => [key, JSON.stringify(value), place ?? origin]);
    return { answer, text: titled(['SETTING', 'VALUE', 'FROM'], rows, 'The gateway reports no settings.') };
  },
};
