import { createInterface } from 'node:readline';
import { idOf, object, parse, string, type Id, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { LegacyUpstream } from './upstream-legacy.ts';
import { ModernUpstream } from './upstream-modern.ts';
import { MODERN, type Revision } from './words.ts';
import type { World } from './world.ts';

function write(message: Message): void {
  if (Object.keys(message).length > 0) process.stdout.write(`${JSON.stringify(message)}\n`);
}

function read(line: string, ledger: LedgerWriter): Message | undefined {
  try {
    return parse(line);
  } catch {
    ledger.violation(`not a message: ${line.slice(0, 200)}`);
    return undefined;
  }
}

function serveLegacy(revision: Revision, ledger: LedgerWriter, world: World): void {
  const upstream = new LegacyUpstream(revision, ledger, world, write);
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const message = read(line, ledger);
    if (message !== undefined) upstream.receive(message);
  });
  lines.on('close', () => {
    upstream.close();
    // What was aborted writes its last lines into the ledger first.
    setTimeout(() => process.exit(0), 20);
  });
}

function serveModern(ledger: LedgerWriter, world: World): void {
  const upstream = new ModernUpstream(ledger, world);
  const running = new Map<Id, AbortController>();
  const serve = async (id: Id, message: Message) => {
    const abort = new AbortController();
    running.set(id, abort);
    const response = await upstream.serve(message, { notify: write, signal: abort.signal });
    running.delete(id);
    if (response !== undefined) write(response);
  };
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const message = read(line, ledger);
    if (message === undefined) return;
    const id = idOf(message);
    if (message['method'] === undefined) ledger.violation('a response, where nothing can be asked');
    else if (id !== undefined) void serve(id, message);
    else if (message['method'] === 'notifications/cancelled') {
      const { requestId } = object(message['params']);
      if (typeof requestId === 'string' || typeof requestId === 'number') running.get(requestId)?.abort();
    } else ledger.violation(`${string(message['method'])} in ${MODERN}`);
  });
  lines.on('close', () => {
    for (const abort of running.values()) abort.abort();
    setTimeout(() => process.exit(0), 20);
  });
}

export function serveStdio(revision: Revision, ledger: LedgerWriter, world: World): void {
  if (revision === MODERN) serveModern(ledger, world);
  else serveLegacy(revision, ledger, world);
}
