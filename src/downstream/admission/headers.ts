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

const NONE: readonly string[] = [];

/** Reads the raw headers, because Node's own `headers` hides repetitions and keeps only the first of some. */
export function readHeaders(raw: readonly string[]): RequestHeaders {
  const headers: RequestHeaders = {
    host: undefined,
    origin: undefined,
    secFetchSite: undefined,
    contentType: undefined,
    contentEncoding: undefined,
    contentLength: undefined,
    sessionId: undefined,
    version: undefined,
    lastEventId: undefined,
    accept: undefined,
    authorization: NONE,
    repeated: undefined,
  };
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
    }
  }
  return headers;
}
