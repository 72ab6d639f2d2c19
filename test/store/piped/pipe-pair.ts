import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { LimitName } from '../../../src/limits.ts';
import { MemoryCounterTable } from '../../../src/store/memory/counter-table.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { MemoryOfferStore } from '../memory/memory-offer-store.ts';
import { MemoryOutcomeStore } from '../../../src/store/memory/outcome-store.ts';
import { MemoryPlacementTable } from '../../../src/store/memory/placement-table.ts';
import { MemoryRateTable } from '../../../src/store/memory/rate-table.ts';
import { LocalSessionStore } from '../../../src/store/sessions/local-session-store.ts';
import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';
import { PipeCalls } from '../../../src/store/piped/pipe-calls.ts';
import type { Pipe } from '../../../src/store/piped/pipe.ts';
import { type ParentStores, StoreServer } from '../../../src/store/piped/store-server.ts';

function portPipe(port: MessagePort): Pipe {
  port.unref();
  return {
    send: (message) => port.postMessage(message),
    onMessage: (listener) => {
      port.on('message', listener);
      port.unref();
    },
    onClosed: (listener) => void port.once('close', listener),
  };
}

/** The two ends of a pipe. Closing one closes both. */
export function pipePair(
  onLimit: (limit: LimitName) => void = () => undefined,
  callMs?: number,
): { readonly one: PipeCalls; readonly other: PipeCalls; readonly close: () => void } {
  const { port1, port2 } = new MessageChannel();
  return {
    one: new PipeCalls(portPipe(port1), onLimit, callMs),
    other: new PipeCalls(portPipe(port2), onLimit, callMs),
    close: () => port1.close(),
  };
}

/** A parent with stores in memory. */
export interface TestParent {
  readonly server: StoreServer;
  /** Returns the end of another worker. */
  worker(): PipeCalls;
  /** Ends the pipe of a worker. */
  end(worker: PipeCalls): void;
}

/** @param own stores in place of those in memory; `state` those of its state. */
export function testParent(
  own: Partial<Omit<ParentStores, 'state'>> = {},
  leaseMs = 60_000,
  state: Partial<ParentStores['state']> = {},
): TestParent {
  const ignore = () => undefined;
  const server = new StoreServer({
    state: {
      keys: new MemoryKeyStore(),
      sessions: new LocalSessionStore(ignore),
      offers: new MemoryOfferStore(),
      tasks: new MemoryTaskStore(() => undefined),
      keyedCalls: new MemoryKeyedCallStore(ignore),
      ...state,
    },
    outcomes: new MemoryOutcomeStore(ignore),
    placements: new MemoryPlacementTable(leaseMs),
    counters: new MemoryCounterTable(leaseMs),
    rates: new MemoryRateTable(ignore),
    ...own,
  });
  const ends = new Map<PipeCalls, () => void>();
  return {
    server,
    worker: () => {
      const { one, other, close } = pipePair();
      const remove = server.add(one);
      ends.set(other, () => {
        close();
        remove();
      });
      return other;
    },
    end: (worker) => ends.get(worker)?.(),
  };
}
