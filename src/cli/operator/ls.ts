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
  const target = await findGateway(options);
  const { answer, text } = await READERS[list](target, options);
  print(options.json ? jsonText(answer) : text);
  return EXIT.ok;
}

const CUT = 'There are more; --json has no more either. Narrow the list with its options.\n';

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

/** A part of an answer that all replicas have made, some of which may be missing. */
interface Answered {
  readonly isCut?: boolean;
  readonly unanswered?: Parameters<typeof unansweredText>[0];
}

/** The cell of an item in each column, by its heading. */
type Columns<Item> = Readonly<Record<string, (item: Item) => string>>;

/** Returns a list with a column for the replicas of its items if there are several. @param none printed if there are no items. */
function printed<Item extends object>(
  answer: Answered,
  items: readonly Item[],
  none: string,
  columns: Columns<Item>,
): Printed {
  const replicaOf = (item: Item) => ('replica' in item && typeof item.replica === 'string' ? item.replica : '');
  const hasSeveral = items.some((item) => replicaOf(item) !== '');
  const all: Columns<Item> = hasSeveral ? { ...columns, REPLICA: replicaOf } : columns;
  const rows = items.map((item) => Object.values(all).map((cellOf) => oneLine(cellOf(item))));
  const list =
    rows.length === 0 ? `${none}\n` : `${table([Object.keys(all), ...rows])}${answer.isCut === true ? CUT : ''}`;
  return { answer, text: `${list}${unansweredText(answer.unanswered)}` };
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
    const none = answer.items.length > 0 ? '' : await whyNoItems(target, upstream);
    return printed(answer, answer.items, none, {
      KIND: ({ kind }) => kind,
      NAME: ({ name }) => name,
      FROM: ({ name, upstream: id, upstreamName = '' }) => (upstreamName === name ? id : `${id}: ${upstreamName}`),
      STATUS: ({ status }) => status,
      WHY: ({ why = '' }) => why,
    });
  },
  clients: async (target) => {
    const answer = await askGateway(target, answers.clientsAnswer, { path: '/clients' });
    return printed(answer, answer.clients, 'No client has connected since the start.', {
      CLIENT: ({ name, version }) => `${name} ${version}`.trim(),
      REVISION: ({ revision }) => revision,
      AS: ({ principal }) => principal,
      TIMES: ({ connections }) => String(connections),
      'LAST SEEN': ({ lastSeenAt }) => lastSeenAt,
      DECLARES: ({ capabilities }) => capabilities.join(', '),
    });
  },
  sessions: async (target) => {
    const answer = await askGateway(target, answers.sessionsAnswer, { path: '/sessions' });
    return printed(answer, answer.sessions, 'No session is in memory.', {
      ID: ({ id }) => id,
      KIND: ({ kind }) => kind,
      CLIENT: ({ client = '-' }) => client,
      AS: ({ principal }) => principal,
      ENDPOINT: ({ view }) => endpointPath(view),
      'IN FLIGHT': ({ requestsInFlight }) => countText(requestsInFlight, 'request'),
      STREAMS: ({ streams }) => countText(streams, 'stream'),
      UPSTREAMS: ({ upstreams }) => upstreams.join(', '),
      IDLE: ({ idleSeconds }) => durationText(idleSeconds),
    });
  },
  streams: async (target) => {
    const answer = await askGateway(target, answers.streamsAnswer, { path: '/streams' });
    return printed(answer, answer.streams, 'No stream is open.', {
      SESSION: ({ session }) => session,
      KIND: ({ kind }) => kind,
      COUNT: ({ count }) => String(count),
      AS: ({ principal }) => principal,
      ENDPOINT: ({ view }) => endpointPath(view),
    });
  },
  calls: async (target) => {
    const answer = await askGateway(target, answers.callsAnswer, { path: '/calls' });
    return printed(answer, answer.calls, 'No request is in flight.', {
      STATE: ({ state }) => state,
      CALL: ({ tool, method }) => tool ?? method,
      UPSTREAM: ({ upstream = '' }) => upstream,
      AS: ({ principal }) => principal,
      SESSION: ({ session }) => session,
      FOR: ({ seconds }) => durationText(seconds),
    });
  },
  config: async (target) => {
    const answer = await askGateway(target, answers.configAnswer, { path: '/config' });
    const { text } = printed({}, answer.settings, 'The gateway reports no settings.', {
      SETTING: ({ key }) => key,
      VALUE: ({ value }) => JSON.stringify(value),
      FROM: ({ place, origin }) => place ?? origin,
    });
    return { answer, text };
  },
};
