/** The operations of a user at a server. Each check passes, or throws with what it has observed. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Mode, PeerClient, Question } from './clients/client.ts';

/** A server as one client sees it. At the merged endpoint its names have a prefix. */
export interface View {
  readonly client: PeerClient;
  readonly id: string;
  /** Longest wait for a notification. */
  readonly waitMs: number;
  /** Opens another connection of the same kind. */
  connect(declares: readonly Question[]): Promise<PeerClient>;
}

interface Check {
  readonly name: string;
  readonly modes: readonly Mode[];
  run(view: View): Promise<void>;
}

const BOTH: readonly Mode[] = ['legacy', 'modern'];
const SESSIONS: readonly Mode[] = ['legacy'];

const POLL_MS = 50;
const CANCEL_MS = 8_000;

/** Returns the published form of a name: unchanged, or after `<id>__`. */
function published(id: string, names: readonly string[], name: string): string {
  const found = names.find((one) => one === name || one === `${id}__${name}`);
  assert.ok(found, `${name} is not listed; ${names.length} are`);
  return found;
}

const publishedUri = (id: string, uris: readonly string[], path: string): string => {
  const uri = `peer://${id}/${path}`;
  const found = uris.find((one) => one === uri || one === `${id}+${uri}`);
  assert.ok(found, `${uri} is not listed; ${uris.length} are`);
  return found;
};

const tool = async ({ client, id }: View, name: string) => published(id, await client.tools(), name);

async function textOf(view: View, name: string, args: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const { text, isError } = await view.client.call(await tool(view, name), args);
  assert.equal(isError, false, text);
  return text;
}

async function cancelledCount(view: View): Promise<number> {
  return Number(await textOf(view, 'count_cancelled'));
}

/** The call has begun when its sibling is answered, because servers begin calls in order. */
async function cancels(view: View): Promise<void> {
  const before = await cancelledCount(view);
  const slow = await tool(view, 'slow');
  const abort = new AbortController();
  const ended = view.client.call(slow, {}, { signal: abort.signal }).then(
    () => 'answered',
    () => 'cancelled',
  );
  await textOf(view, 'echo', { text: 'meanwhile' });
  abort.abort();
  assert.equal(await ended, 'cancelled');
  const deadline = Date.now() + CANCEL_MS;
  while ((await cancelledCount(view)) === before) {
    assert.ok(Date.now() < deadline, 'the server does not learn of it');
    await delay(POLL_MS);
  }
}

async function readsTemplate(view: View): Promise<void> {
  const { client, id } = view;
  const template = publishedUri(id, await client.templates(), 'users/{name}');
  assert.equal(await client.read(template.replace('{name}', 'ada')), 'the user ada');
}

async function getsUpdate(view: View): Promise<void> {
  const { client, id, waitMs } = view;
  const uri = publishedUri(id, await client.resources(), 'watched');
  await client.watch(uri);
  await textOf(view, 'touch');
  await client.waitForNotification('notifications/resources/updated', waitMs, ({ params }) => params?.['uri'] === uri);
}

async function survivesRefusal(view: View): Promise<void> {
  await using client = await view.connect([]);
  const undeclared = { ...view, client };
  const ask = await tool(undeclared, 'ask_name');
  const call = client.call(ask).then(
    ({ isError }) => isError,
    () => true,
  );
  const meanwhile = textOf(undeclared, 'echo', { text: 'meanwhile' });
  assert.equal(await call, true, 'the question was answered though the client had not declared it');
  assert.equal(await meanwhile, 'meanwhile');
  for (let i = 0; i < 3; i++) assert.equal(await textOf(undeclared, 'echo', { text: `after ${i}` }), `after ${i}`);
}

export const CHECKS: readonly Check[] = [
  {
    name: 'calls a tool',
    modes: BOTH,
    run: async (view) => assert.equal(await textOf(view, 'echo', { text: 'Grüße 🙂 \u2028' }), 'Grüße 🙂 \u2028'),
  },
  {
    name: 'reads structured content',
    modes: BOTH,
    run: async (view) => {
      const { structured } = await view.client.call(await tool(view, 'add'), { a: 1, b: 2 });
      assert.deepEqual(structured, { sum: 3 });
    },
  },
  {
    name: 'reads the error of a tool',
    modes: BOTH,
    run: async (view) => {
      const { isError, text } = await view.client.call(await tool(view, 'fail'));
      assert.equal(isError, true);
      assert.match(text, /fails on purpose/);
    },
  },
  {
    name: 'makes 20 simultaneous calls',
    modes: BOTH,
    run: async (view) => {
      const echo = await tool(view, 'echo');
      const texts = Array.from({ length: 20 }, (_, i) => `call ${i}`);
      const answers = await Promise.all(texts.map((text) => view.client.call(echo, { text })));
      assert.deepEqual(
        answers.map(({ text }) => text),
        texts,
      );
    },
  },
  {
    name: 'gets progress',
    modes: BOTH,
    run: async (view) => {
      const { progress } = await view.client.call(await tool(view, 'progress'));
      assert.deepEqual(progress, [1, 2, 3]);
    },
  },
  {
    name: 'gets the log of a call without setting a level',
    modes: SESSIONS,
    run: async (view) => {
      await textOf(view, 'log');
      await view.client.waitForNotification('notifications/message', view.waitMs);
    },
  },
  {
    name: 'gets the log of a call from its level on',
    modes: BOTH,
    run: async (view) => {
      if (view.client.revision !== '2026-07-28') await view.client.setLevel('debug');
      await view.client.call(await tool(view, 'log'), {}, { logLevel: 'debug' });
      await view.client.waitForNotification('notifications/message', view.waitMs);
    },
  },
  {
    name: 'is asked for its name',
    modes: BOTH,
    run: async (view) => assert.equal(await textOf(view, 'ask_name'), 'Hello, Ada'),
  },
  {
    name: 'is asked for its name by a result',
    modes: BOTH,
    run: async (view) => assert.equal(await textOf(view, 'ask_name_by_result'), 'Hello, Ada'),
  },
  {
    name: 'is asked for a sample',
    modes: BOTH,
    run: async (view) => assert.equal(await textOf(view, 'ask_model'), 'The model says Paris'),
  },
  {
    name: 'is asked for its roots',
    modes: BOTH,
    run: async (view) => assert.match(await textOf(view, 'ask_roots'), /file:\/\/\/peer/),
  },
  { name: 'cancels a call', modes: BOTH, run: cancels },
  {
    name: 'keeps its count in a session',
    modes: SESSIONS,
    run: async (view) => {
      const first = Number(await textOf(view, 'count'));
      assert.equal(Number(await textOf(view, 'count')), first + 1);
    },
  },
  {
    name: 'reads a resource',
    modes: BOTH,
    run: async ({ client, id }) => {
      const uri = publishedUri(id, await client.resources(), 'greeting');
      assert.equal(await client.read(uri), 'Good morning');
    },
  },
  { name: 'reads a resource of a template', modes: BOTH, run: readsTemplate },
  { name: 'gets an update of a resource', modes: BOTH, run: getsUpdate },
  {
    name: 'gets a prompt',
    modes: BOTH,
    run: async ({ client, id }) => {
      const name = published(id, await client.prompts(), 'greet');
      assert.equal(await client.prompt(name, { language: 'French' }), 'Greet me in French');
    },
  },
  {
    name: 'completes an argument of a prompt',
    modes: BOTH,
    run: async ({ client, id }) => {
      const name = published(id, await client.prompts(), 'greet');
      const ref = { type: 'ref/prompt' as const, name };
      assert.deepEqual(await client.complete({ ref, name: 'language', value: 'fr' }), ['french']);
    },
  },
  {
    name: 'completes a variable of a template',
    modes: BOTH,
    run: async ({ client, id }) => {
      const uri = publishedUri(id, await client.templates(), 'users/{name}');
      const ref = { type: 'ref/resource' as const, uri };
      assert.deepEqual(await client.complete({ ref, name: 'name', value: 'a' }), ['ada']);
    },
  },
  {
    name: 'gets the notification that tools changed',
    modes: BOTH,
    run: async (view) => {
      await view.client.watch();
      await textOf(view, 'change');
      await view.client.waitForNotification('notifications/tools/list_changed', view.waitMs);
    },
  },
  { name: 'pings', modes: SESSIONS, run: ({ client }) => client.ping() },
  { name: 'continues after a refused question', modes: BOTH, run: survivesRefusal },
];
