import type { Series } from '../suite.ts';
import { underAttack } from './arena.ts';

const MIB = 1_048_576;
/** Less than the default limit of a body, 4 MiB. */
const BODY_BYTES = 4_000_000;
const REPEATS = 3;

/** Returns a `ping` whose `_meta` has many members. */
export function bodyWithKeys(count: number): Buffer {
  const members = Array.from({ length: count }, (_, index) => `"k${index}":1`);
  return ping(`{${members.join(',')}}`);
}

function ping(meta: string): Buffer {
  return Buffer.from(`{"jsonrpc":"2.0","id":"body","method":"ping","params":{"_meta":${meta}}}`);
}

/** Returns `[item,item,…]` of about the size of the largest body. */
function arrayOf(item: string): string {
  const count = Math.floor(BODY_BYTES / (item.length + 1));
  return `[${Array.from({ length: count }, () => item).join(',')}]`;
}

interface Body {
  readonly label: string;
  readonly build: () => Buffer;
}

const BODIES: readonly Body[] = [
  { label: '330 000 keys', build: () => bodyWithKeys(330_000) },
  { label: 'the same key again', build: () => ping(`{${arrayOf('"k":1').slice(1, -1)}}`) },
  { label: 'brackets left open', build: () => Buffer.from('['.repeat(BODY_BYTES)) },
  { label: 'brackets in brackets', build: () => ping(`${'['.repeat(BODY_BYTES / 2)}${']'.repeat(BODY_BYTES / 2)}`) },
  { label: 'batch of [[[[]]]]', build: () => Buffer.from(arrayOf('[[[[]]]]')) },
  { label: 'batch of deep items', build: () => Buffer.from(arrayOf(`${'['.repeat(500)}${']'.repeat(500)}`)) },
  { label: 'batch of pings', build: () => Buffer.from(arrayOf('{"jsonrpc":"2.0","id":1,"method":"ping"}')) },
  { label: 'numbers', build: () => ping(arrayOf('1')) },
  { label: 'long numbers', build: () => ping(arrayOf('1'.repeat(100_000))) },
  { label: 'empty objects', build: () => ping(arrayOf('{}')) },
  { label: 'escapes', build: () => ping(`"${String.raw`\u0061`.repeat(BODY_BYTES / 6)}"`) },
  { label: 'one long text', build: () => ping(`"${'a'.repeat(BODY_BYTES)}"`) },
];

const POINTS = BODIES.map(({ label, build }) => ({
  label,
  measure: (bench: Parameters<typeof underAttack>[0]) => {
    return underAttack(bench, {
      attack: async ({ open, gateway }) => {
        const client = await open();
        const body = build();
        await gateway.metrics();
        let blockMs = 0;
        let status = 0;
        for (let repeat = 0; repeat < REPEATS; repeat++) {
          ({ status } = await client.post(body));
          blockMs = Math.max(blockMs, await gateway.longestBlockMs());
        }
        return { 'body block ms': blockMs, 'ms a MiB': blockMs / (body.length / MIB), status };
      },
    });
  },
}));

export const BODIES_SERIES: Series = {
  id: 'N-27',
  title: `bodies of ${BODY_BYTES / 1e6} MB`,
  points: POINTS,
  bounds: POINTS.flatMap(({ label }) => [
    { point: label, column: 'ms a MiB', atMost: 50 },
    { point: label, column: 'body block ms', atMost: 250 },
  ]),
};
