import { createParser } from 'eventsource-parser';

/** One HTTP response, as far as it has arrived. */
export interface Reply {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** True if its end has arrived. */
  readonly isWhole: boolean;
}

/** A JSON-RPC message in a response, as `JSON.parse` reads it. */
export type SeenMessage = Readonly<Record<string, unknown>>;

const HEAD_END = '\r\n\r\n';

/** Splits the bytes of a connection, read as latin1, into responses. Returns undefined if they are not HTTP/1.1. */
export function repliesIn(received: string): readonly Reply[] | undefined {
  const replies: Reply[] = [];
  let rest = received;
  while (rest !== '') {
    const end = rest.indexOf(HEAD_END);
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(rest)?.[1];
    if (status === undefined) return undefined;
    if (end < 0) return [...replies, { status: Number(status), headers: new Map(), body: '', isWhole: false }];
    const headers = new Map(
      rest
        .slice(0, end)
        .split('\r\n')
        .slice(1)
        .map((line): [string, string] => {
          const colon = line.indexOf(':');
          return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
        }),
    );
    const { body, isWhole, length } = bodyIn(rest.slice(end + HEAD_END.length), headers, Number(status));
    replies.push({ status: Number(status), headers, body: Buffer.from(body, 'latin1').toString('utf8'), isWhole });
    rest = rest.slice(end + HEAD_END.length + length);
  }
  return replies;
}

interface Body {
  readonly body: string;
  readonly isWhole: boolean;
  /** The number of bytes that it takes on the connection. */
  readonly length: number;
}

function bodyIn(rest: string, headers: ReadonlyMap<string, string>, status: number): Body {
  if (status < 200 || status === 204 || status === 304) return { body: '', isWhole: true, length: 0 };
  if (headers.get('transfer-encoding') === 'chunked') return chunkedIn(rest);
  const length = headers.get('content-length');
  // Until the end of the connection.
  if (length === undefined) return { body: rest, isWhole: true, length: rest.length };
  const body = rest.slice(0, Number(length));
  return { body, isWhole: body.length === Number(length), length: body.length };
}

function chunkedIn(rest: string): Body {
  let body = '';
  let at = 0;
  for (;;) {
    const lineEnd = rest.indexOf('\r\n', at);
    if (lineEnd < 0) return { body, isWhole: false, length: rest.length };
    const size = Number.parseInt(rest.slice(at, lineEnd), 16);
    const next = lineEnd + 2 + size + 2;
    if (Number.isNaN(size) || next > rest.length) return { body, isWhole: false, length: rest.length };
    if (size === 0) return { body, isWhole: true, length: next };
    body += rest.slice(lineEnd + 2, lineEnd + 2 + size);
    at = next;
  }
}

/** Returns the JSON-RPC messages of a response; undefined if its body claims to have some and cannot be read. */
export function messagesIn({ headers, body }: Reply): readonly SeenMessage[] | undefined {
  const type = headers.get('content-type') ?? '';
  try {
    if (type.startsWith('application/json')) return body === '' ? [] : listOf(JSON.parse(body));
    if (!type.startsWith('text/event-stream')) return [];
    const texts: string[] = [];
    const parser = createParser({ onEvent: ({ data }) => data !== '' && texts.push(data) });
    parser.feed(body);
    return texts.flatMap((text) => listOf(JSON.parse(text)));
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return undefined;
    throw thrown;
  }
}

function listOf(value: unknown): readonly SeenMessage[] {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.flatMap((one) => (typeof one === 'object' && one !== null ? [{ ...one }] : []));
}
