import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { Child } from './child.ts';

const TIMEOUT = { timeout: 120_000 };
const node = (program: string, group = false) => Child.start(process.execPath, ['-e', program], { group });

test('what a program says can be awaited, also after it was said', TIMEOUT, async () => {
  await using child = await node('console.log("port 7"); setInterval(() => {}, 1000)');
  const port = (line: string) => /port (\d+)/.exec(line)?.[1];
  assert.equal(await child.waitForLine(port), '7');
  assert.equal(await child.waitForLine(port), '7');
});

test('awaiting what a program never said fails with its log when it ends', TIMEOUT, async () => {
  const child = await node('console.error("no such file"); process.exitCode = 3');
  await assert.rejects(
    child.waitForLine(() => undefined),
    /ended \(3\)[^]*no such file/,
  );
});

test('a program that ignores SIGTERM is killed', TIMEOUT, async () => {
  const child = await node('process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 1000)');
  await child.waitForLine((line) => line);
  assert.equal(await child.stop(200), undefined);
  assert.equal(child.running, false);
});

test('a group ends with its leader', TIMEOUT, async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const address = server.address();
  assert(address !== null && typeof address === 'object');

  const grandchild = `process.on("SIGTERM", () => {}); require("net").connect(${address.port}, "127.0.0.1")`;
  const leader = `require("child_process").spawn(process.execPath, ["-e", ${JSON.stringify(grandchild)}]);`;
  const child = await node(leader, true);
  const [socket] = await once(server, 'connection');
  child.kill('SIGTERM');
  await once(socket.resume(), 'close');
});
