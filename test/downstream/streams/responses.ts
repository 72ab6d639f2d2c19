import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { listenLocally } from '../../support/local-port.ts';

/** A client's side of one response with events. */
export interface EventReply {
  readonly status: number;
  /** Resolves with the data of the events so far when there are `count`, or when the response has ended. */
  data(count?: number): Promise<string[]>;
  /** Disconnects, and resolves when the server has seen it. */
  disconnect(): Promise<void>;
}

export interface Responder extends AsyncDisposable {
  /** Sends a GET, and passes the server's response on. Resolves when the client has the headers. */
  get(attach: (response: ServerResponse) => void | Promise<void>): Promise<EventReply>;
}

function dataIn(text: string): string[] {
  return [...text.matchAll(/^data: (.+)\n/gm)].map(([, data = '']) => data);
}

/** Serves real responses on a port of its own. */
export async function responder(): Promise<Responder> {
  const server = createServer();
  const port = await listenLocally(server);
  const url = `http://127.0.0.1:${port}/`;
  return {
    get: async (attach) => {
      const closed = Promise.withResolvers<void>();
      server.once('request', (_request, response) => {
        response.once('close', () => closed.resolve());
        void attach(response);
      });
      const leaving = new AbortController();
      const { status, body } = await fetch(url, { signal: leaving.signal });
      const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      return {
        status,
        data: async (count = Infinity) => {
          while (dataIn(text).length < count) {
            const piece = await reader?.read();
            if (piece === undefined || piece.done) break;
            text += piece.value;
          }
          return dataIn(text);
        },
        disconnect: async () => {
          leaving.abort();
          await closed.promise;
        },
      };
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
