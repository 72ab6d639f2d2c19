import { isDeepStrictEqual } from 'node:util';
import type { AuditRecord } from './readings.ts';
import { messagesIn, type Reply, type SeenMessage } from './reply.ts';
import { membersOf, parsed, type Spied } from './spy.ts';

/** Everything that was seen of one input. */
export interface Observation {
  readonly nonce: string;
  /** The bytes of the message of the client. */
  readonly message: Buffer;
  /** Undefined if the gateway answered with something that is not HTTP/1.1. */
  readonly replies: readonly Reply[] | undefined;
  readonly spied: readonly Spied[];
  /** True if the fuzzer may have closed the connection before the end of the answer. */
  readonly mayBeCut: boolean;
  /** True if the connection was still open after a long time. */
  readonly isSilent: boolean;
  /** True if nothing may reach an upstream. */
  readonly isForged: boolean;
}

/** A broken rule: the name of the oracle, and what it has seen. */
export interface Violation {
  readonly oracle: OracleName;
  readonly text: string;
}

export const ORACLES = [
  'alive',
  'rejections',
  'delay',
  'memory',
  'silent',
  'framing',
  'status',
  'id',
  'operation',
  'denied',
  'rejected',
  'answered',
  'forged',
  'foreign',
  'audit',
] as const;
export type OracleName = (typeof ORACLES)[number];

/** Methods that a client causes at an upstream. The gateway sends others for itself. */
const FORWARDED: ReadonlySet<unknown> = new Set([
  'tools/call',
  'resources/read',
  'prompts/get',
  'completion/complete',
  'resources/subscribe',
  'resources/unsubscribe',
]);

const OWN = /^(?:initialize|ping|server\/discover|subscriptions\/listen|logging\/setLevel|notifications\/.*|.*\/list)$/;

/** Judges one input by everything but its audit records. @param documented the HTTP statuses that docs/errors.md lists. */
export function judge(seen: Observation, documented: ReadonlySet<number>): readonly Violation[] {
  const { replies } = seen;
  if (replies === undefined) return [{ oracle: 'framing', text: 'the answer is not HTTP/1.1' }];
  return [
    ...(seen.isSilent ? [{ oracle: 'silent' as const, text: 'no answer' }] : []),
    ...framing(seen, replies),
    ...statuses(replies, documented),
    ...ids(seen, replies),
    ...operations(seen),
    ...rejections(seen, replies),
    ...forgeries(seen),
    ...foreign(seen, replies),
  ];
}

function framing({ mayBeCut }: Observation, replies: readonly Reply[]): readonly Violation[] {
  return replies.flatMap((reply): readonly Violation[] => {
    if (mayBeCut && !reply.isWhole) return [];
    if (!reply.isWhole && reply.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
      return [{ oracle: 'framing', text: `the answer with status ${reply.status} is cut` }];
    }
    return messagesIn(reply) === undefined ? [{ oracle: 'framing', text: `unreadable body: ${reply.body}` }] : [];
  });
}

/** An internal error is documented, and a defect. */
function statuses(replies: readonly Reply[], documented: ReadonlySet<number>): readonly Violation[] {
  return replies
    .filter(({ status }) => status === 500 || (status >= 300 && !documented.has(status)))
    .map(({ status, body }) => ({ oracle: 'status', text: `status ${status}: ${body.slice(0, 200)}` }));
}

/** Returns the message as `JSON.parse` reads it; undefined if it is no JSON in UTF-8. */
function readByClient(message: Buffer): unknown {
  try {
    // A byte order mark is no part of the text (RFC 8259 §8.1).
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(message));
  } catch (thrown) {
    if (thrown instanceof SyntaxError || thrown instanceof TypeError) return undefined;
    throw thrown;
  }
}

/** The numbers 0 and -0 are one id. */
function ids({ message }: Observation, replies: readonly Reply[]): readonly Violation[] {
  const read = readByClient(message);
  const sent: readonly unknown[] = Array.isArray(read) ? read : [read];
  const own = sent.map((one) => membersOf(one)['id']).filter((id) => id !== undefined);
  return replies
    .flatMap((reply) => messagesIn(reply) ?? [])
    .filter((answer) => 'result' in answer || 'error' in answer)
    .filter(({ id }) => id !== undefined && id !== null && !own.some((one) => one === id))
    .map(({ id }) => ({ oracle: 'id', text: `answered id ${JSON.stringify(id)}, sent ${JSON.stringify(own)}` }));
}

/** Returns the requests that this input has caused at upstreams. */
function causedBy({ spied }: Observation): readonly (Spied & { readonly message: SeenMessage })[] {
  return spied
    .map((one) => ({ ...one, message: membersOf(parsed(one.body)) }))
    .filter(({ message }) => !OWN.test(String(message['method'])) && message['method'] !== undefined);
}

function operations(seen: Observation): readonly Violation[] {
  const broken = seen.spied.filter(({ body }) => parsed(body) === undefined);
  if (broken.length > 0) return [{ oracle: 'operation', text: `the upstream got no JSON: ${broken[0]?.body}` }];
  const caused = causedBy(seen);
  const read = membersOf(readByClient(seen.message));
  const several: readonly Violation[] =
    caused.length > 1 ? [{ oracle: 'operation', text: `${caused.length} requests at upstreams` }] : [];
  return [
    ...several,
    ...caused.flatMap(({ upstream, message, body }): readonly Violation[] => {
      const differs = difference(read, message, upstream);
      return [
        ...(differs === undefined ? [] : [{ oracle: 'operation' as const, text: `${differs}; upstream got ${body}` }]),
        ...(isDenied(message) ? [{ oracle: 'denied' as const, text: `upstream got ${body}` }] : []),
      ];
    }),
  ];
}

/** Returns how the operation at an upstream differs from that of the client; undefined if it is the same. */
function difference(read: SeenMessage, got: SeenMessage, upstream: string): string | undefined {
  const { method, id } = read;
  if (method !== got['method'] || !FORWARDED.has(got['method'])) return `the client sent ${JSON.stringify(method)}`;
  if (id === undefined) return 'the client sent a notification';
  const [wanted, params] = [membersOf(read['params']), membersOf(got['params'])];
  if (method === 'tools/call' || method === 'prompts/get') {
    if (wanted['name'] !== `${upstream}__${String(params['name'])}`)
      return `the client named ${String(wanted['name'])}`;
    const same = isDeepStrictEqual(wanted['arguments'] ?? {}, params['arguments'] ?? {});
    return same ? undefined : `the client sent the arguments ${JSON.stringify(wanted['arguments'])}`;
  }
  if (method !== 'resources/read') return undefined;
  const uri = String(params['uri']);
  const published = [uri, `${upstream}+${uri}`];
  return published.includes(String(wanted['uri'])) ? undefined : `the client named ${String(wanted['uri'])}`;
}

/** Returns whether the access policy of the gateway denies an operation, also if the upstream reads it leniently. */
function isDenied({ method, params: given }: SeenMessage): boolean {
  const params = membersOf(given);
  if (method === 'tools/call') {
    const args = Object.entries(membersOf(params['arguments']));
    const isHidden = lenient(String(params['name'])) === 'hidden';
    return isHidden || args.some(([name, value]) => lenient(name) === 'deny' && value === true);
  }
  return method === 'resources/read' && isSecret(String(params['uri']));
}

function lenient(name: string): string {
  return name.normalize('NFKC').toLowerCase();
}

/** Returns whether a URI is below `file:///secret` for a server that decodes it and resolves its steps. */
function isSecret(uri: string): boolean {
  try {
    const path = new URL(uri).pathname;
    return [path, decodeURIComponent(path)].some((one) => /^\/+secret(?:\/|$)/.test(new URL(one, 'file:///').pathname));
  } catch {
    return false;
  }
}

function rejections(seen: Observation, replies: readonly Reply[]): readonly Violation[] {
  const caused = causedBy(seen);
  const answers = replies.flatMap((reply) => messagesIn(reply) ?? []);
  const isRefused = (answer: SeenMessage) => membersOf(membersOf(answer['error'])['data'])['executed'] === 'no';
  const isRejected = replies.length > 0 && replies.every(({ status }) => status >= 400 && status < 500);
  if (caused.length > 0 && (isRejected || answers.some(isRefused))) {
    return [{ oracle: 'rejected', text: `refused, and the upstream got ${caused[0]?.body}` }];
  }
  const read = membersOf(readByClient(seen.message));
  const isSpied = /^(?:leg|mod)__/.test(String(membersOf(read['params'])['name']));
  const isAnswered = read['method'] === 'tools/call' && isSpied && answers.some((answer) => 'result' in answer);
  if (isAnswered && caused.length === 0) return [{ oracle: 'answered', text: 'a result of no call at an upstream' }];
  return [];
}

function forgeries(seen: Observation): readonly Violation[] {
  const [caused] = seen.isForged ? causedBy(seen) : [];
  return caused === undefined ? [] : [{ oracle: 'forged', text: `the upstream got ${caused.body}` }];
}

/** The form of a nonce. */
export const NONCE = /fuzz-\d+-\d+-end/g;

function foreign({ nonce }: Observation, replies: readonly Reply[]): readonly Violation[] {
  // A header that repeats the host of the client would lead other clients there.
  const repeated = replies
    .flatMap(({ headers }) => [...headers])
    .filter(([, value]) => value.match(NONCE) !== null)
    .map(([name, value]): Violation => ({
      oracle: 'foreign',
      text: `the header ${name} has a part of the input: ${value}`,
    }));
  const others = replies
    .flatMap(({ body }) => body.match(NONCE) ?? [])
    .filter((found) => found !== nonce)
    .map((found): Violation => ({ oracle: 'foreign', text: `the answer has the nonce ${found} of another input` }));
  return [...repeated, ...others];
}

/** Compares what reached upstreams with the records of it: the operation that was judged. */
export function judgeRecords(seen: Observation, records: readonly AuditRecord[]): readonly Violation[] {
  return causedBy(seen).flatMap(({ upstream, message, body }): readonly Violation[] => {
    const params = membersOf(message['params']);
    // Without the nonce in what a record has, its record cannot be told from others.
    const isTold = JSON.stringify([params['name'], params['arguments']]).includes(seen.nonce);
    if (message['method'] !== 'tools/call' || !isTold) return [];
    const own = records.filter((record) => JSON.stringify(record).includes(seen.nonce));
    const isRecorded = own.some(
      (record) =>
        record['kind'] === 'request' &&
        record['method'] === 'tools/call' &&
        record['decision'] === 'allowed' &&
        record['upstream'] === upstream &&
        record['upstreamName'] === params['name'] &&
        (record['argumentsCut'] !== undefined ||
          isDeepStrictEqual(argumentsOf(record), asRecorded(params['arguments'] ?? {}))),
    );
    return isRecorded ? [] : [{ oracle: 'audit', text: `no record of ${body}; records: ${JSON.stringify(own)}` }];
  });
}

/** Returns a value as a record has it: JSON has no negative zero when it is written, and no infinity. */
function asRecorded(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

/** Returns the arguments of a record, which has them as text or as a value. */
function argumentsOf(record: AuditRecord): unknown {
  const given = record['arguments'];
  return typeof given === 'string' ? parsed(given) : (given ?? {});
}
