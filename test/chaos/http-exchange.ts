import { type IncomingMessage, request as httpRequest } from 'node:http';
import { createParser } from 'eventsource-parser';
import { NONCE } from './plan.ts';

/** One JSON-RPC message as a client reads it. */
export interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

export interface Response {
  /** Undefined if no response began. */
  readonly status: number | undefined;
  readonly sessionId: string | undefined;
  /** The body, if it is not events. */
  readonly text: string;
  readonly isEvents: boolean;
  /** False if the connection ended before the response. */
  readonly isWhole: boolean;
  /** The error of the connection. */
  readonly failure: string;
}

export interface Sent {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly onEvent?: (message: Message | undefined, id: string | undefined) => void;
  /** Gets all nonces in the response. */
  readonly seen: Set<string>;
}

/** One request on a connection of its own. */
export interface HttpExchange {
  /** Never rejects. */
  readonly done: Promise<Response>;
  /** Resets the connection. */
  readonly reset: () => void;
}

const NOTHING = { status: undefined, sessionId: undefined, text: '', isEvents: false, isWhole: false };

/** Sends one request. */
export function exchange(url: string, { method, headers, body, onEvent, seen }: Sent): HttpExchange {
  const request = httpRequest(url, { method, headers, agent: false });
  const { promise, resolve } = Promise.withResolvers<Response>();
  request.on('error', (thrown) => resolve({ ...NOTHING, failure: thrown.message }));
  request.on('close', () => resolve({ ...NOTHING, failure: 'closed' }));
  request.on('response', (response) => {
    readResponse(response, seen, onEvent).then(resolve, (thrown: unknown) =>
      resolve({ ...NOTHING, failure: String(thrown) }),
    );
  });
  request.end(body);
  return {
    done: promise,
    reset: () => {
      request.socket?.resetAndDestroy();
      request.destroy();
    },
  };
}

async function readResponse(
  response: IncomingMessage,
  seen: Set<string>,
  onEvent: Sent['onEvent'] = () => undefined,
): Promise<Response> {
  const sessionId = response.headers['mcp-session-id'];
  const isEvents = String(response.headers['content-type']).startsWith('text/event-stream');
  const parser = createParser({
    onEvent: ({ id, data }) => onEvent(data === '' ? undefined : parseMessage(data), id),
  });
  let text = '';
  let failure = '';
  response.setEncoding('utf8');
  try {
    for await (const chunk of response) {
      text += String(chunk);
      if (isEvents && response.statusCode === 200) parser.feed(String(chunk));
    }
  } catch (thrown) {
    failure = thrown instanceof Error ? thrown.message : String(thrown);
  }
  for (const nonce of text.match(NONCE) ?? []) seen.add(nonce);
  return {
    status: response.statusCode,
    sessionId: typeof sessionId === 'string' ? sessionId : undefined,
    text: isEvents ? '' : text,
    isEvents,
    isWhole: failure === '',
    failure,
  };
}

/** Returns a JSON-RPC message, or undefined for any other text. */
export function parseMessage(text: string): Message | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
