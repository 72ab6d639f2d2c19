import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { z } from 'zod';

const VALUE = z.strictObject({ stringValue: z.string().optional(), intValue: z.string().optional() });
const ATTRIBUTES = z.array(z.strictObject({ key: z.string(), value: VALUE }));
const LOG_RECORD = z.strictObject({
  timeUnixNano: z.string().regex(/^\d{19}$/),
  observedTimeUnixNano: z.string(),
  severityNumber: z.int(),
  severityText: z.string(),
  eventName: z.string(),
  body: z.strictObject({ stringValue: z.string() }),
  attributes: ATTRIBUTES,
  traceId: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional(),
});
/** @see https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/logs/v1/logs.proto */
const EXPORT = z.strictObject({
  resourceLogs: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes: ATTRIBUTES }),
      scopeLogs: z.array(
        z.strictObject({ scope: z.strictObject({ name: z.string() }), logRecords: z.array(LOG_RECORD) }),
      ),
    }),
  ),
});

/** A log record, as the receiver has accepted it. */
export interface ReceivedLog {
  readonly body: string;
  readonly eventName: string;
  readonly attributes: Readonly<Record<string, string | undefined>>;
  readonly resource: Readonly<Record<string, string | undefined>>;
  readonly traceId: string | undefined;
}

/**
 * The fate of an export. `accept`: kept. `lose`: kept, and the connection breaks before the answer. `hang`: kept, and never answered.
 * `reject`: kept but for one record, as the answer says. A number: refused with this HTTP status.
 */
export type Reaction = 'accept' | 'lose' | 'hang' | 'reject' | number;

/** A receiver of OTLP logs over HTTP with JSON. */
export interface LogReceiver extends AsyncDisposable {
  /** Without a path. */
  readonly url: string;
  readonly port: number;
  /** Applies to exports from now on. */
  react: Reaction;
  /** All exports, also those that were refused. */
  readonly requests: { readonly path: string; readonly headers: IncomingHttpHeaders; readonly bytes: number }[];
  readonly logs: ReceivedLog[];
}

/** Starts a receiver. @param port 0 for a free one. @param tls certificate and key in PEM, for https. */
export async function startLogReceiver(
  port = 0,
  tls?: { readonly cert: string; readonly key: string },
): Promise<LogReceiver> {
  const answer: RequestListener = (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      receiver.requests.push({ path: request.url ?? '', headers: request.headers, bytes: body.length });
      const { react } = receiver;
      if (typeof react === 'number') {
        response.writeHead(react).end();
        return;
      }
      const logs = logsIn(body.toString());
      receiver.logs.push(...(react === 'reject' ? logs.slice(1) : logs));
      if (react === 'hang') return;
      if (react === 'lose') {
        response.destroy();
        return;
      }
      const partial = react === 'reject' ? { partialSuccess: { rejectedLogRecords: '1', errorMessage: 'full' } } : {};
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(partial));
    });
  };
  const server = tls === undefined ? createServer(answer) : createTlsServer({ ...tls }, answer);
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('not listening on a port');
  const receiver: LogReceiver = {
    url: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${address.port}`,
    port: address.port,
    react: 'accept',
    requests: [],
    logs: [],
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
  return receiver;
}

function logsIn(body: string): ReceivedLog[] {
  return EXPORT.parse(JSON.parse(body)).resourceLogs.flatMap(({ resource, scopeLogs }) =>
    scopeLogs.flatMap(({ logRecords }) =>
      logRecords.map(({ body: { stringValue }, eventName, attributes, traceId }) => ({
        body: stringValue,
        eventName,
        attributes: valuesOf(attributes),
        resource: valuesOf(resource.attributes),
        traceId,
      })),
    ),
  );
}

function valuesOf(attributes: z.infer<typeof ATTRIBUTES>): Record<string, string | undefined> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));
}

/** Returns the lines of an audit log from what a receiver has: in the order of their numbers, and each once. */
export function auditLinesOf(logs: readonly Pick<ReceivedLog, 'body' | 'attributes'>[]): string[] {
  const seqOf = (log: Pick<ReceivedLog, 'attributes'>) => Number(log.attributes['linkspan.audit.seq']);
  const sorted = logs.toSorted((a, b) => seqOf(a) - seqOf(b) || (a.body < b.body ? -1 : 1));
  return [...new Set(sorted.map(({ body }) => body))];
}
