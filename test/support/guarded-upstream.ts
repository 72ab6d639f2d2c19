import { createServer, request as send, type IncomingHttpHeaders } from 'node:http';
import { listenLocally } from './local-port.ts';

/** One request that reached a guard. */
export interface GuardedRequest {
  /** `POST tools/call`, `GET`, `DELETE`: the HTTP method and that of JSON-RPC. */
  readonly what: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly isAccepted: boolean;
}

/** The decision about a request: true lets it pass, false means 401, and a text is the challenge of a 403. */
type Verdict = boolean | string;

/** Decides by `Authorization`, and by the HTTP method and that of JSON-RPC. */
type Decide = (authorization: string | undefined, what: string) => Verdict | Promise<Verdict>;

/** A server in front of another one, which lets only requests with the right credentials pass. */
export interface Guard extends AsyncDisposable {
  readonly url: string;
  readonly requests: readonly GuardedRequest[];
  /** Replaces the decision. */
  accept(decide: Decide): void;
}

/** Starts a guard. @param target URL of the server behind it. @param path of the guard's URL. */
export async function startGuard(target: string, first: Decide, path = new URL(target).pathname): Promise<Guard> {
  const requests: GuardedRequest[] = [];
  let decide = first;
  const { hostname, port } = new URL(target);
  const server = createServer((incoming, outgoing) => {
    const pass = async (): Promise<void> => {
      let body = '';
      for await (const chunk of incoming.setEncoding('utf8')) body += String(chunk);
      const { method = '', headers, url = '' } = incoming;
      const rpc: { readonly method?: string } = body === '' ? {} : JSON.parse(body);
      const what = rpc.method === undefined ? method : `${method} ${rpc.method}`;
      const verdict = await decide(headers.authorization, what);
      requests.push({ what, headers, body, isAccepted: verdict === true });
      if (verdict !== true) {
        const challenge = verdict === false ? 'Bearer error="invalid_token"' : verdict;
        outgoing.writeHead(verdict === false ? 401 : 403, { 'www-authenticate': challenge }).end();
        return;
      }
      const { authorization: _authorization, ...rest } = headers;
      const forwarded = send(
        { hostname, port, method, path: url, headers: { ...rest, host: `${hostname}:${port}` } },
        (response) => {
          outgoing.writeHead(response.statusCode ?? 502, response.headers);
          outgoing.flushHeaders();
          response.pipe(outgoing);
        },
      );
      forwarded.on('error', () => outgoing.destroy());
      outgoing.once('close', () => forwarded.destroy());
      forwarded.end(body);
    };
    pass().catch((thrown: unknown) => outgoing.destroy(new Error('not passed on', { cause: thrown })));
  });
  const ownPort = await listenLocally(server);
  return {
    url: `http://127.0.0.1:${ownPort}${path}`,
    requests,
    accept: (next) => {
      decide = next;
    },
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await Promise.resolve();
    },
  };
}
