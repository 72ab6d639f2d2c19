/**
 * Runs inside a gateway under test (`node --import`): answers each connection to the socket `LINKSPAN_FUZZ_GAUGE` with one line of JSON, the
 * {@link GaugeReading} since the connection before.
 */
import { createServer } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const RESOLUTION_MS = 5; // subject
const NS_PER_MS = 1_000_000;

setFlagsFromString('--expose-gc');
const collect: unknown = runInNewContext('gc');
const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
delay.enable();
let rejections = 0;
process.on('unhandledRejection', () => rejections++);

const path = process.env['LINKSPAN_FUZZ_GAUGE'];
if (path !== undefined) {
  createServer((socket) => {
    const delayMs = delay.max / NS_PER_MS;
    if (typeof collect === 'function') collect();
    const reading = { heapBytes: process.memoryUsage().heapUsed, delayMs, rejections };
    // The collection is no delay of the gateway.
    setImmediate(() => delay.reset());
    socket.on('error', () => undefined);
    socket.end(`${JSON.stringify(reading)}\n`);
  })
    .listen(path)
    .unref();
}
