import type { ClientRequest } from '../../gateway/front/client-http.ts';

/** The headers that the client's edge reads. */
export interface RequestHeaders {
  host: string | undefined;
  origin: string | undefined;
  secFetchSite: string | undefined;
  contentType: string | undefined;
  contentEncoding: string | undefined;
  contentLength: string | undefined;
  sessionId: string | undefined;
  version: string | undefined;
  lastEventId: string | undefined;
  accept: string | undefined;
  authorization: readonly string[];
  /** Name of a repeated header, which readers may interpret differently. */
  repeated: string | undefined;
}

type Single = Exclude<keyof RequestHeaders, 'accept' | 'authorization' | 'repeated'>;

const SINGLE: ReadonlyMap<string, Single> = new Map([
  ['host', 'host'],
  ['origin', 'origin'],
  ['sec-fetch-site', 'secFetchSite'],
  ['content-type', 'contentType'],
  ['content-encoding', 'contentEncoding'],
  ['content-length', 'contentLength'],
  ['mcp-session-id', 'sessionId'],
  ['mcp-protocol-version', 'version'],
  ['last-event-id', 'lastEventId'],
]);

/** Headers that repeat parts of the body: `Mcp-Method`, `Mcp-Name`, `Mcp-Param-…`. */
const OF_MCP = 'mcp-';

const NONE: readonly string[] = [];

/** The two forms in which Node keeps the headers of a request. */
export type HeaderForms = Pick<ClientRequest, 'headers' | 'rawHeaders'>;

/** Reads the headers of a request: from Node's `headers`, unless that hides a repetition. */
export function readHeaders({ headers, rawHeaders }: HeaderForms): RequestHeaders {
  if (Object.keys(headers).length * 2 !== rawHeaders.length) return readRawHeaders(rawHeaders);
  const { host, origin, accept, authorization } = headers;
  return {
    host,
    origin,
    secFetchSite: headers['sec-fetch-site'],
    contentType: headers['content-type'],
    contentEncoding: headers['content-encoding'],
    contentLength: headers['content-length'],
    sessionId: single(headers['mcp-session-id']),
    version: single(headers['mcp-protocol-version']),
    lastEventId: single(headers['last-event-id']),
    accept,
    authorization: authorization === undefined ? NONE : [authorization],
    repeated: undefined,
  };
}

/** Narrows the type: only `set-cookie` is an array. */
function single(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Reads the raw headers: name, value, name, value. */
export function readRawHeaders(raw: readonly string[]): RequestHeaders {
  // Each is undefined before it is found.
  const headers = readHeaders({ headers: {}, rawHeaders: [] });
  const ofMcp = new Set<string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]?.toLowerCase() ?? '';
    const value = raw[i + 1] ?? '';
    const key = SINGLE.get(name);
    if (key !== undefined) {
      if (headers[key] === undefined) headers[key] = value;
      else headers.repeated ??= name;
    } else if (name === 'accept') {
      headers.accept = headers.accept === undefined ? value : `${headers.accept},${value}`;
    } else if (name === 'authorization') {
      headers.authorization = [...headers.authorization, value];
    } else if (name.startsWith(OF_MCP)) {
      // Node joins the values, and a proxy may route by the first.
      if (ofMcp.has(name)) headers.repeated ??= name;
      ofMcp.add(name);
    }
  }
  return headers;
}
