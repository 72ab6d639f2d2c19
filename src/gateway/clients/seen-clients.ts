import type { RawObject } from '../../json/json.ts';
import { detach, KeptMap } from '../../json/kept-text.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { shownText } from '../../peer-text.ts';
import { type Era, eraOf } from '../../protocol/revisions.ts';
import type { Caller } from '../front/caller.ts';

/** A kind of client: all that declare the same things with the credentials of one principal. */
export interface SeenClient {
  /** Shortened, because the client chooses it. */
  readonly name: string;
  readonly version: string;
  readonly revision: string;
  readonly era: Era;
  /** The names of the declared capabilities. */
  readonly capabilities: readonly string[];
  /** The label of the principal. */
  readonly principal: string;
  /** legacy: the number of opened sessions. modern: the number of distinct declarations. */
  connections: number;
  readonly firstMs: number;
  /** Wall clock, ms since the epoch, as `firstMs`. */
  lastMs: number;
}

/** The longest part of a name, version or capability that is kept. */
const MAX_TEXT_CHARS = 100;
/** The largest number of capabilities of one client that are kept. */
const MAX_CAPABILITIES = 20;

/** The time after which a client takes a place in the list again. Otherwise more clients than places would search the list with each request. */
const RETURN_MS = 60_000;

const UNNAMED = '(no name)';

interface Entry {
  readonly client: SeenClient;
  /** False if others have taken its place in the list. */
  isListed: boolean;
  /** The time when they did; wall clock, ms since the epoch. */
  removedMs: number;
}

/** The clients that this process has served, as they describe themselves. The least recently seen is removed first. */
export class SeenClients {
  readonly #listed = new KeptMap<Entry>();
  readonly #byCaller = new WeakMap<Caller, Entry>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Returns the clients, the latest first. */
  values(): readonly SeenClient[] {
    return [...this.#listed.values()].map(({ client }) => client).toSorted((a, b) => b.lastMs - a.lastMs);
  }

  /** Returns how the client of a caller describes itself; undefined if it has not done so in this process. */
  find(caller: Caller): SeenClient | undefined {
    return this.#byCaller.get(caller)?.client;
  }

  /**
   * Records a client. Cheap for a caller that was recorded before, as for nearly every modern request.
   *
   * @param info the `clientInfo` that it has sent, if any.
   * @param nowMs wall clock, ms since the epoch.
   */
  record(caller: Caller, info: RawObject | undefined, nowMs: number): void {
    const known = this.#byCaller.get(caller);
    if (known !== undefined && (known.isListed || nowMs - known.removedMs < RETURN_MS)) {
      known.client.lastMs = nowMs;
      return;
    }
    const client = describe(caller, info, nowMs);
    const { name, version, revision, principal, capabilities } = client;
    const key = detach(JSON.stringify([name, version, revision, principal, ...capabilities]));
    const same = this.#listed.get(key) ?? known ?? { client, isListed: false, removedMs: 0 };
    if (same !== known) same.client.connections++;
    same.client.lastMs = nowMs;
    this.#byCaller.set(caller, same);
    if (same.isListed) return;
    same.isListed = true;
    this.#listed.set(key, same);
    if (this.#listed.size > LIMITS.seenClients) this.#removeOldest(nowMs);
  }

  #removeOldest(nowMs: number): void {
    let oldest: readonly [key: string, entry: Entry] | undefined;
    for (const one of this.#listed) {
      if (oldest === undefined || one[1].client.lastMs < oldest[1].client.lastMs) oldest = one;
    }
    if (oldest === undefined) return;
    const [key, entry] = oldest;
    this.#listed.delete(key);
    entry.isListed = false;
    entry.removedMs = nowMs;
    this.#onLimit('seenClients');
  }
}

function describe(
  { principal, revision, capabilities }: Caller,
  info: RawObject | undefined,
  nowMs: number,
): SeenClient {
  return {
    name: kept(info?.string('name') ?? UNNAMED),
    version: kept(info?.string('version') ?? ''),
    revision,
    era: eraOf(revision),
    capabilities: capabilities
      .keys()
      .slice(0, MAX_CAPABILITIES)
      .map((name) => kept(name)),
    principal: kept(principal.label),
    connections: 0,
    firstMs: nowMs,
    lastMs: nowMs,
  };
}

function kept(text: string): string {
  return detach(shownText(text, MAX_TEXT_CHARS));
}
