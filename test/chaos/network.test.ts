import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Child } from '../support/child.ts';
import { waitUntil } from '../support/wait-until.ts';
import { NamespaceNetwork } from './network.ts';
import { DIRECTIONS, type Direction } from './plan.ts';

const { missing } = NamespaceNetwork;
const OPTIONS = {
  timeout: 120_000,
  ...(missing === undefined ? {} : { skip: `${missing}; npm run partitions cannot run here` }),
};
const PORT = 4_000;
/** Prints and returns each datagram. */
const SERVER = `const socket = require('node:dgram').createSocket('udp4');
socket.on('message', (text, { address, port }) => { console.log('got', address); socket.send(text, port, address); });
socket.bind(${PORT}, process.argv[1], () => console.log('ready'));`;
/** Sends a datagram again and again, and prints what comes back. */
const CLIENT = `const socket = require('node:dgram').createSocket('udp4');
socket.on('message', () => console.log('got it back'));
setInterval(() => socket.send('x', ${PORT}, process.argv[1]), 20);`;

async function start(via: readonly string[], program: string, address: string): Promise<Child> {
  const [command, ...args] = [...via, process.execPath, '-e', program, address];
  return await Child.start(command, args);
}

const linesOf = (child: Child, text: string) =>
  child
    .logs()
    .split('\n')
    .filter((line) => line === text).length;

test('on a way that is cut packets vanish, in both directions or in one', OPTIONS, async () => {
  await using network = await NamespaceNetwork.open();
  const address = network.hostOf('Redis');
  await using server = await start(network.via('Redis'), SERVER, address);
  await server.waitForLine((line) => (line === 'ready' ? true : undefined));
  await using client = await start(network.via(0), CLIENT, address);
  await using bystander = await start(network.via(1), CLIENT, address);
  const arrived = () => linesOf(server, `got ${network.hostOf(0)}`);
  const returned = (one: Child) => linesOf(one, 'got it back');
  /** Waits until the other replica has got more datagrams back, so that those of this one had time to arrive. */
  const untilOthers = async () => {
    const before = returned(bystander);
    await waitUntil(() => returned(bystander) >= before + 10);
  };
  const expected: Readonly<Record<Direction, readonly [arrives: boolean, returns: boolean]>> = {
    both: [false, false],
    out: [false, false],
    in: [true, false],
  };
  for (const direction of DIRECTIONS) {
    await waitUntil(() => returned(client) > 0);
    network.cut(0, 'Redis', direction);
    await untilOthers();
    const [sent, back] = [arrived(), returned(client)];
    if (expected[direction][0]) await waitUntil(() => arrived() > sent);
    await untilOthers();
    assert.deepEqual([arrived() > sent, returned(client) > back], expected[direction], direction);
    network.restore(0, 'Redis', direction);
    const after = returned(client);
    await waitUntil(() => returned(client) > after);
  }
  network.cut(0, 'others');
  const before = returned(client);
  await waitUntil(() => returned(client) > before);
});
