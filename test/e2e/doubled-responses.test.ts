import assert from 'node:assert/strict';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Agent, request as httpRequest } from 'node:http';
import { test } from 'node:test';
import { BOTH, initialize, rpc } from '../downstream/client.ts';
import { type Doubling, type DoublingServer, doublingHttp } from '../fixtures/servers/doubling.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';

const STDIO = fileURLToPath(new URL('../fixtures/servers/doubling-stdio.ts', import.meta.url));
const TRIES = 10;
const DELAYS_MS = [5, 12, 25];
const TIMEOUT = { timeout: 120_000 };

/** A session on one kept connection, so that the gateway reads its request in one turn of the event loop. */
class User implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #url: string;
  readonly #session: string;
  #lastId = 0;

  private constructor(url: string, session: string) {
    this.#url = url;
    this.#session = session;
  }

  static async open(url: string): Promise<User> {
    return new User(url, await initialize(url));
  }

  async list(): Promise<string> {
    return await this.#post('tools/list', {});
  }

  async echo(nonce: string): Promise<string> {
    return await this.#post('tools/call', { name: 'up__echo', arguments: { nonce } });
  }

  async #post(method: string, params: object): Promise<string> {
    const headers = { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': this.#session };
    const request = httpRequest(this.#url, { method: 'POST', agent: this.#agent, headers });
    const response = once(request, 'response');
    request.end(rpc(++this.#lastId, method, params));
    let text = '';
    for await (const chunk of (await response)[0]) text += String(chunk);
    return text;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

function entryOf(kind: Doubling, { url }: DoublingServer): Record<string, string> {
  return kind === 'sse' ? { url, type: 'sse' } : { url, era: 'legacy' };
}

/**
 * Sends a call of one user, and one of another user while the gateway is stopped and the first response arrives
 * again.
 *
 * @returns the answers to the other user, each with the expected text.
 */
async function attack(
  gateway: RunningGateway,
  server: DoublingServer | undefined,
  delayMs: number,
): Promise<readonly (readonly [text: string, nonce: string])[]> {
  using victim = await User.open(gateway.endpoint());
  using other = await User.open(gateway.endpoint());
  for (const user of [victim, other]) {
    assert.match(await user.list(), /up__echo/);
    assert.match(await user.echo('hello'), /hello/);
  }
  const got: (readonly [string, string])[] = [];
  for (let n = 0; n < TRIES; n++) {
    const [secret, nonce] = [`secret-${delayMs}-${n}`, `own-${delayMs}-${n}`];
    assert.match(await victim.echo(secret), new RegExp(secret));
    process.kill(gateway.pid, 'SIGSTOP');
    const answer = other.echo(nonce);
    try {
      await server?.doubled(secret);
    } finally {
      process.kill(gateway.pid, 'SIGCONT');
    }
    const text = await answer;
    assert.doesNotMatch(text, /secret/);
    got.push([text, nonce]);
    // The connection still works: its answers are not shifted by one.
    assert.match(await victim.echo(`again-${nonce}`), new RegExp(`again-${nonce}`));
  }
  return got;
}

for (const kind of ['json', 'events', 'sse'] satisfies Doubling[]) {
  for (const isHeld of [false, true]) {
    const name = `${kind}${isHeld ? ', read late' : ''}`;
    // N-20
    test(`a response sent twice (${name}) reaches no other user`, TIMEOUT, async () => {
      for (const delayMs of isHeld ? [5] : DELAYS_MS) {
        await using server = await doublingHttp(kind, delayMs, isHeld);
        await using gateway = await startGateway({ mcpServers: { up: entryOf(kind, server) } });
        for (const [text, nonce] of await attack(gateway, server, delayMs)) {
          // If the gateway cannot know the duplicate before it writes the request, the request fails with an error
          // that says so.
          if (isHeld && kind !== 'sse') assert.match(text, new RegExp(`${nonce}|"executed":"unknown"`));
          else assert.match(text, new RegExp(nonce));
        }
      }
    });
  }
}

// N-20
test('an answer printed twice by a shared process reaches no other user', TIMEOUT, async () => {
  for (const delayMs of DELAYS_MS) {
    const up = { command: process.execPath, args: [STDIO, String(delayMs)], isolation: 'shared' };
    await using gateway = await startGateway({ mcpServers: { up } });
    for (const [text, nonce] of await attack(gateway, undefined, delayMs)) assert.match(text, new RegExp(nonce));
  }
});
