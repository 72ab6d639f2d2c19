import { createInterface, type Interface } from 'node:readline';
import { idOf, object, parse, string, type Id, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { LegacyUpstream } from './upstream-legacy.ts';
import { ModernUpstream } from './upstream-modern.ts';
import { DUAL, DUAL_LEGACY, META, MODERN, type Revision } from './words.ts';
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

/** The lines of a process, and their end. */
type Input = Pick<Interface, 'on'>;

function serveLegacy(revision: Revision, ledger: LedgerWriter, world: World, lines: Input): void {
  const upstream = new LegacyUpstream(revision, ledger, world, write);
  lines.on('line', (line) => {
    const message = read(line, ledger);
    if (message !== undefined) upstream.receive(message);
  });
  lines.on('close', () => {
    upstream.close();
    // Aborted calls first write their last records into the ledger.
    setTimeout(() => process.exit(0), 20);
  });
}

function serveModern(ledger: LedgerWriter, world: World, canAsk: boolean, lines: Input): void {
  const upstream = new ModernUpstream(ledger, world, canAsk);
  const running = new Map<Id, AbortController>();
  const serve = async (id: Id, message: Message) => {
    const abort = new AbortController();
    running.set(id, abort);
    const response = await upstream.serve(message, { notify: write, signal: abort.signal });
    running.delete(id);
    if (response !== undefined) write(response);
  };
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

/** The first message decides the era of the process, as in the SDKs. */
function serveDual(ledger: LedgerWriter, world: World, lines: Interface): void {
  lines.once('line', (line) => {
    const message = read(line, ledger);
    if (message === undefined) return;
    if (isModern(message)) serveModern(ledger, world, false, lines);
    else serveLegacy(DUAL_LEGACY, ledger, world, lines);
    lines.emit('line', line);
  });
}

export function isModern(message: Message): boolean {
  return object(object(message['params'])['_meta'])[META.revision] !== undefined;
}

export function serveStdio(revision: Revision | typeof DUAL, ledger: LedgerWriter, world: World): void {
  const lines = createInterface({ input: process.stdin });
  if (revision === DUAL) serveDual(ledger, world, lines);
  else if (revision === MODERN) serveModern(ledger, world, true, lines);
  else serveLegacy(revision, ledger, world, lines);
}
