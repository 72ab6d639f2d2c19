import { COMMAND } from '../../command-name.ts';
import * as answers from '../../operator/admin/answers.ts';
import { askGateway } from './admin-client.ts';
import { EXIT } from './cli-error.ts';
import { oneLine } from '../../peer-text.ts';
import { countText, durationText, jsonText, print, table } from './output.ts';
import { type PrintOptions, upstreamTable } from './status.ts';
import { findGateway, type RunningGateway } from './running-gateway.ts';
import { endpointPath } from '../../endpoint-path.ts';

/** The lists that `linkspan ls` prints. */
export const LISTS = ['upstreams', 'items', 'clients', 'sessions', 'streams', 'calls', 'config'] as const;
export type List = (typeof LISTS)[number];

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

const READERS: Readonly<Record<List, (target: RunningGateway, options: LsOptions) => Promise<Printed>>> = {
  upstreams: async (target) => {
    const answer = await askGateway(target, answers.upstreamsAnswer, { path: '/upstreams' });
    return { answer, text: upstreamTable(answer.upstreams) };
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
    const none = `This endpoint has no items. "${COMMAND} ls upstreams" says whether its upstreams are up.`;
    return { answer, text: titled(['KIND', 'NAME', 'FROM', 'STATUS', 'WHY'], rows, none, answer.isCut) };
  },
  clients: async (target) => {
    const answer = await askGateway(target, answers.clientsAnswer, { path: '/clients' });
    const rows = answer.clients.map((one) => [
      `${one.name} ${one.version}`.trim(),
      one.revision,
      one.principal,
      String(one.connections),
      one.lastSeenAt,
      one.capabilities.join(', '),
    ]);
    const headings = ['CLIENT', 'REVISION', 'AS', 'TIMES', 'LAST SEEN', 'DECLARES'];
    return { answer, text: titled(headings, rows, 'No client has connected since the start.') };
  },
  sessions: async (target) => {
    const answer = await askGateway(target, answers.sessionsAnswer, { path: '/sessions' });
    const rows = answer.sessions.map((one) => [
      one.id,
      one.kind,
      one.client ?? '',
      one.principal,
      endpointPath(one.view),
      countText(one.requestsInFlight, 'request'),
      countText(one.streams, 'stream'),
      one.upstreams.join(', '),
      durationText(one.idleSeconds),
    ]);
    const headings = ['ID', 'KIND', 'CLIENT', 'AS', 'ENDPOINT', 'IN FLIGHT', 'STREAMS', 'UPSTREAMS', 'IDLE'];
    return { answer, text: titled(headings, rows, 'No session is in memory.', answer.isCut) };
  },
  streams: async (target) => {
    const answer = await askGateway(target, answers.streamsAnswer, { path: '/streams' });
    const rows = answer.streams.map((one) => [one.session, one.kind, String(one.count), one.principal, one.view]);
    const headings = ['SESSION', 'KIND', 'COUNT', 'AS', 'ENDPOINT'];
    return { answer, text: titled(headings, rows, 'No stream is open.', answer.isCut) };
  },
  calls: async (target) => {
    const answer = await askGateway(target, answers.callsAnswer, { path: '/calls' });
    const rows = answer.calls.map((one) => [
      one.state,
      one.tool ?? one.method,
      one.upstream ?? '',
      one.principal,
      one.session,
      durationText(one.seconds),
    ]);
    const headings = ['STATE', 'CALL', 'UPSTREAM', 'AS', 'SESSION', 'FOR'];
    return { answer, text: titled(headings, rows, 'No request is in flight.', answer.isCut) };
  },
  config: async (target) => {
    const answer = await askGateway(target, answers.configAnswer, { path: '/config' });
    const rows = answer.settings.map(({ key, value, origin, place }) => [key, JSON.stringify(value), place ?? origin]);
    return { answer, text: titled(['SETTING', 'VALUE', 'FROM'], rows, 'The gateway reports no settings.') };
  },
};
