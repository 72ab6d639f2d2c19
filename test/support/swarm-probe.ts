/**
 * Loaded into a gateway with `--import`. On SIGPWR it reports on stderr which objects are alive after a full
 * collection.
 */
import { Socket } from 'node:net';
import { queryObjects } from 'node:v8';
import { EventStream } from '../../src/downstream/streams/event-stream.ts';
import { StreamWriter } from '../../src/downstream/streams/stream-writer.ts';
import { OpenExchange } from '../../src/gateway/exchange/open-exchange.ts';
import { Session } from '../../src/gateway/clients/session.ts';
import { Connection } from '../../src/upstream/rpc/connection.ts';
import { UpstreamPost } from '../../src/upstream/http/http-post.ts';
import { ProcessGroup } from '../../src/upstream/stdio/process-group.ts';

const { constructor: Timeout } = setTimeout(() => {}, 0);

/** Each class costs a scan of the whole heap, so classes that only these retain are not counted. */
const KINDS: readonly (readonly [string, Function])[] = [
  ['session', Session],
  ['exchange', OpenExchange],
  ['outflow', StreamWriter],
  ['event stream', EventStream],
  ['connection', Connection],
  ['post', UpstreamPost],
  ['process group', ProcessGroup],
  ['socket', Socket],
  ['timer', Timeout],
  ['abort signal', AbortSignal],
];

function listeners(): number {
  return process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
}

let probes = 0;

process.on('SIGPWR', () => {
  const alive = Object.fromEntries(KINDS.map(([name, kind]) => [name, queryObjects(kind, { format: 'count' })]));
  alive['process listener'] = listeners();
  const { heapUsed: heapBytes } = process.memoryUsage();
  process.stderr.write(`${JSON.stringify({ probe: ++probes, alive, heapBytes })}\n`);
});
