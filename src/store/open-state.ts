import { StartError } from '../errors.ts';
import { join } from 'node:path';
import type { LimitName } from '../limits.ts';
import { openDiskKeys } from './disk/key-store.ts';
import { diskOfferStore } from './disk/offer-store.ts';
import { readOperatorFile } from './disk/operator-file.ts';
import { directoryRisk } from './disk/own-file.ts';
import { ownUser, writeFault } from './disk/path-fault.ts';
import { makeStateDir, removeOldDrafts } from './disk/state-file.ts';
import { isStateLocked, lockState, type StateLock } from './disk/state-lock.ts';
import type { KeyedCallStore } from './keyed-call-store.ts';
import type { KeyStore } from './key-store.ts';
import { LocalSessionStore, type SessionStoreEvents } from './sessions/local-session-store.ts';
import { MemoryKeyedCallStore } from './memory/keyed-call-store.ts';
import { MemoryKeyStore } from './memory/key-store.ts';
import { MemoryTaskStore } from './memory/task-store.ts';
import type { OfferStore } from './offer-store.ts';
import type { OutcomeStore } from './outcome-store.ts';
import type { SessionStore } from './session-store.ts';
import type { TaskStore } from './task-store.ts';

/** Everything that outlives a request and is not configuration. */
export interface State extends AsyncDisposable {
  readonly keys: KeyStore;
  readonly sessions: SessionStore;
  readonly offers: OfferStore;
  readonly tasks: TaskStore;
  readonly keyedCalls: KeyedCallStore;
  /** Undefined if there is no other process that could need them. */
  readonly outcomes: OutcomeStore | undefined;
  /** The reason why sessions and handles end with this process, in words; undefined if they are kept. */
  readonly notice: string | undefined;
  /** True if the gateway is of use while the state cannot be written: it serves requests that need none. */
  readonly servesWithout: boolean;
}

export interface StateOptions {
  /** Lets this process own the directory and keep sessions in it. */
  readonly mayOwn: boolean;
  readonly events: SessionStoreEvents;
}

/**
 * Opens the state directory.
 *
 * One process at a time owns it, and keeps sessions and keys there. Any other process keeps its own in memory, because two processes would
 * not see which sessions the other has ended. It only reads the lists of upstreams.
 *
 * @throws {Error} with a message for the operator, if the directory cannot be used.
 */
export async function openState(stateDir: string, options: StateOptions): Promise<State> {
  return options.mayOwn ? await openOwn(stateDir, options.events) : await openShared(stateDir, options.events);
}

async function openOwn(stateDir: string, events: SessionStoreEvents): Promise<State> {
  const lock = await withAdvice(stateDir, async () => {
    await makeStateDir(stateDir);
    return await lockState(stateDir);
  });
  if (lock === undefined) {
    const owner = await readOperatorFile(stateDir).catch(() => undefined);
    const other = owner === undefined ? 'another process' : `process ${owner.pid}, the gateway of ${owner.configFile},`;
    // Short, since the log cuts long texts. Its line names the directory.
    const notice = `${other} uses the same state directory; stop one of them, or give each a stateDir of its own`;
    return inMemory(diskOfferStore(stateDir, events, false), notice, events);
  }
  try {
    const risk = await directoryRisk(stateDir);
    if (risk !== undefined) events.onRefused(new Error(risk));
    return await withAdvice(stateDir, () => ownState(stateDir, lock, events));
  } catch (thrown) {
    await lock.release();
    throw thrown;
  }
}

async function ownState(stateDir: string, lock: StateLock, events: SessionStoreEvents): Promise<State> {
  const offersDir = join(stateDir, 'offers');
  await makeStateDir(offersDir);
  for (const dir of [stateDir, offersDir]) await removeOldDrafts(dir);
  const keys = await openDiskKeys(stateDir);
  let restored: Promise<void> | undefined;
  const sessions = await LocalSessionStore.open(stateDir, {
    ...events,
    onRecovered: () => {
      // If the directory was removed, or its disk was replaced, the keys are gone. The next process could open no handle.
      restored = keys.restore().catch((error: unknown) => events.onWriteFailed(error));
      events.onRecovered();
    },
  });
  return {
    ...endingState(events),
    keys,
    sessions,
    offers: diskOfferStore(stateDir, events),
    notice: undefined,
    [Symbol.asyncDispose]: async () => {
      await sessions[Symbol.asyncDispose]();
      await restored;
      await lock.release();
    },
  };
}

/** Opens state in memory, with the lists on disk if they can be read. Never fails: a process that serves one client needs no directory. */
async function openShared(stateDir: string, events: SessionStoreEvents): Promise<State> {
  // If another process owns the directory, that process writes the lists.
  const isLocked = await isStateLocked(stateDir).catch(() => false);
  const offers = diskOfferStore(stateDir, events, !isLocked);
  return inMemory(offers, 'sessions end with this process', events);
}

function inMemory(offers: OfferStore, notice: string, events: SessionStoreEvents): State {
  const sessions = new LocalSessionStore((limit) => events.onLimit(limit));
  const keys = new MemoryKeyStore();
  // Nothing is open.
  return { ...endingState(events), keys, sessions, offers, notice, [Symbol.asyncDispose]: async () => undefined };
}

/** Returns the part of the state that ends with every process that has no others beside it. */
function endingState(events: SessionStoreEvents) {
  const onLimit = (limit: LimitName) => events.onLimit(limit);
  return {
    tasks: new MemoryTaskStore(onLimit),
    keyedCalls: new MemoryKeyedCallStore(onLimit),
    outcomes: undefined,
    servesWithout: false,
  };
}

/** Adds advice for the operator to errors of the operating system. */
async function withAdvice<T>(stateDir: string, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (thrown) {
    const fault = writeFault(thrown, 'it does not exist and cannot be made');
    if (fault === undefined) throw thrown;
    throw new StartError(
      `The state directory ${stateDir} cannot be used: ${fault}. ` +
        `Set gateway.stateDir in the config, or XDG_STATE_HOME, to a directory that ${ownUser()} can write.`,
      { cause: thrown },
    );
  }
}
