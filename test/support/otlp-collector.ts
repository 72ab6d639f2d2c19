import { createServer, type IncomingHttpHeaders } from 'node:http';
import { once } from 'node:events';
import { Waitlist } from '../fixtures/servers/http-harness.ts';
import { listenLocally } from './local-port.ts';

/** One span, as the collector has received it. Ids are hex. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for the first span of a trace. */
  readonly parentId: string;
  readonly name: string;
  readonly kind: 'internal' | 'server' | 'client' | undefined;
  readonly attributes: Readonly<Record<string, string>>;
  /** Ids of linked spans. */
  readonly links: readonly string[];
  readonly isError: boolean;
  readonly durationMs: number;
  readonly resource: Readonly<Record<string, string>>;
}

/** A receiver of OTLP over HTTP. */
export interface Collector extends AsyncDisposable {
  /** The URL for `gateway.tracing.endpoint`, without a path. */
  readonly endpoint: string;
  readonly spans: Waitlist<CollectedSpan>;
  /** The requests so far. */
  readonly requests: { readonly path: string; readonly headers: IncomingHttpHeaders; readonly body: Buffer }[];
}

/** Values of a protobuf message by the number of their field. Numbers and fixed64 are bigint. */
type Fields = Map<number, (Buffer | bigint)[]>;

const KINDS: ReadonlyMap<bigint, CollectedSpan['kind']> = new Map([
  [1n, 'internal'],
  [2n, 'server'],
  [3n, 'client'],
]);
const STATUS_ERROR = 2n;

function fieldsOf(bytes: Buffer): Fields {
  const fields: Fields = new Map();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const key = Number(varint());
    let value: Buffer | bigint;
    switch (key & 7) {
      case 0:
        value = varint();
        break;
      case 1:
        value = bytes.readBigUInt64LE(at);
        at += 8;
        break;
      case 2: {
        const length = Number(varint());
        value = bytes.subarray(at, at + length);
        at += length;
        break;
      }
      case 5:
        value = BigInt(bytes.readUInt32LE(at));
        at += 4;
        break;
      default:
        throw new Error(`wire type ${key & 7}`);
    }
    fields.set(key >> 3, [...(fields.get(key >> 3) ?? []), value]);
  }
  return fields;
}

function messages(fields: Fields, field: number): Fields[] {
  return (fields.get(field) ?? []).map((value) => fieldsOf(bytesOf(value)));
}

function bytesOf(value: Buffer | bigint | undefined): Buffer {
  return typeof value === 'object' ? value : Buffer.alloc(0);
}

function numberOf(value: Buffer | bigint | undefined): bigint {
  return typeof value === 'bigint' ? value : 0n;
}

function attributesOf(fields: Fields, field: number): Record<string, string> {
  const pairs = messages(fields, field).map((pair) => {
    const [value = new Map()] = messages(pair, 2);
    const [text] = value.get(1) ?? [];
    return [bytesOf(pair.get(1)?.[0]).toString(), text === undefined ? 'no text' : bytesOf(text).toString()] as const;
  });
  return Object.fromEntries(pairs);
}

/** @see https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto */
function spansIn(body: Buffer): CollectedSpan[] {
  return messages(fieldsOf(body), 1).flatMap((resourceSpans) => {
    const [resource = new Map()] = messages(resourceSpans, 1);
    return messages(resourceSpans, 2)
      .flatMap((scopeSpans) => messages(scopeSpans, 2))
      .map((span): CollectedSpan => {
        const hex = (field: number) => bytesOf(span.get(field)?.[0]).toString('hex');
        const number = (field: number) => numberOf(span.get(field)?.[0]);
        const [status = new Map()] = messages(span, 15);
        return {
          traceId: hex(1),
          spanId: hex(2),
          parentId: hex(4),
          name: bytesOf(span.get(5)?.[0]).toString(),
          kind: KINDS.get(number(6)),
          attributes: attributesOf(span, 9),
          links: messages(span, 13).map((link) => bytesOf(link.get(2)?.[0]).toString('hex')),
          isError: numberOf(status.get(3)?.[0]) === STATUS_ERROR,
          durationMs: Number(number(8) - number(7)) / 1e6,
          resource: attributesOf(resource, 1),
        };
      });
  });
}

/** Starts a collector. @param status of each response. */
export async function startCollector(status = 200): Promise<Collector> {
  const spans = new Waitlist<CollectedSpan>();
  const requests: Collector['requests'] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      requests.push({ path: request.url ?? '', headers: request.headers, body });
      for (const span of spansIn(body)) spans.push(span);
      response.writeHead(status, { 'content-type': 'application/x-protobuf' }).end();
    });
  });
  const port = await listenLocally(server);
  return {
    endpoint: `http://127.0.0.1:${port}`,
    spans,
    requests,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
