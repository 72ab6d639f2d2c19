import type { Logger } from 'pino';
import { GatewayError } from '../../errors.ts';
import type { InternalKeys } from '../../replicas/internal-keys.ts';
import type { KeyStore } from '../../store/key-store.ts';
import { messageOf } from '../../thrown.ts';

/** The interval at which the ring is read, so that a lost one is noticed. */
const RING_MS = 1_000;

/** Callbacks about the ring of keys. Each runs again if it fails. */
export interface RingCallbacks {
  /** Runs when another process has added a key. */
  readonly onRingChanged: () => Promise<void>;
  /** Runs when the ring was lost and replaced, so that no session id is valid any more. */
  readonly onRingReplaced: () => Promise<void>;
}

interface RingEvents extends RingCallbacks {
  /** Runs at once when the ring was replaced, before `onRingReplaced`. */
  readonly onLost: () => void;
}

/** Reads the shared ring of keys again and again, and reports what has changed. */
export class RingWatch {
  readonly #ring: KeyStore;
  readonly #internalKeys: InternalKeys;
  readonly #log: Logger;
  readonly #callbacks: RingEvents;
  readonly #timer: NodeJS.Timeout;
  #isReading = false;
  /** The failure that the log has; undefined if the last read succeeded. */
  #failure: string | undefined;
  /** Monotonic ms. A connection with an unknown key makes the ring be read no sooner. */
  #askedMs = -Infinity;
  #isReplaced = false;
  #known = '';

  constructor(ring: KeyStore, internalKeys: InternalKeys, log: Logger, callbacks: RingEvents) {
    this.#ring = ring;
    this.#internalKeys = internalKeys;
    this.#log = log;
    this.#callbacks = callbacks;
    this.#timer = setInterval(() => void this.#readOnce(), RING_MS).unref();
    const onUnknown = () => {
      const nowMs = performance.now();
      if (nowMs < this.#askedMs || this.#isReading) return;
      this.#askedMs = nowMs + RING_MS;
      void this.#readOnce();
    };
    internalKeys.onUnknown = onUnknown;
  }

  close(): void {
    this.#internalKeys.onUnknown = ignore;
    clearInterval(this.#timer);
  }

  async #readOnce(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      await this.#read();
      this.#failure = undefined;
    } catch (thrown) {
      const failure = messageOf(thrown);
      if (!(thrown instanceof GatewayError) && failure !== this.#failure) {
        this.#failure = failure;
        this.#log.error({ err: thrown }, 'the shared keys cannot be read');
      }
    } finally {
      this.#isReading = false;
    }
  }

  async #read(): Promise<void> {
    const records = await this.#ring.read();
    if (!this.#internalKeys.update(records)) {
      this.#log.error('the shared keys were lost and replaced; all sessions end');
      this.#isReplaced = true;
      this.#callbacks.onLost();
    }
    const found = records.map(({ kid, until }) => `${kid} ${until ?? ''}`).join();
    if (this.#isReplaced) await this.#callbacks.onRingReplaced();
    else if (found !== this.#known) await this.#callbacks.onRingChanged();
    this.#isReplaced = false;
    this.#known = found;
  }
}

function ignore(): void {}
