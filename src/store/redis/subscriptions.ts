/** The interval at which Redis confirms the channels. */
const BEAT_MS = 1_000;
/** A connection that confirms nothing for this long is made again. */
const SILENT_MS = 5_000;

/** The members that the clients of a server and of a cluster have in common. */
export interface SubscriptionClient {
  readonly status: string;
  connect(): Promise<void>;
  disconnect(reconnect?: boolean): void;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  on(event: 'ready', listener: () => void): unknown;
  on(event: 'message', listener: (channel: string, text: string) => void): unknown;
}

/** Receives the messages of a channel. */
export interface ChannelListener {
  onText(text: string): void;
  /** Called when the connection works again after a time in which messages may have been lost. */
  onMissed(): void;
}

/**
 * The channels that a process listens on, over a connection of their own. Redis confirms them each second: without that, nobody would notice a
 * connection that has died in silence.
 */
export class Subscriptions {
  readonly #client: SubscriptionClient;
  /** Rejects with an error if a reply takes too long. */
  readonly #inTime: (reply: Promise<unknown>) => Promise<unknown>;
  readonly #connectionNow: () => unknown;
  readonly #listeners = new Map<string, ChannelListener>();
  readonly #timer: NodeJS.Timeout;
  #isBeating = false;
  #mayMiss = false;
  #confirmedMs = performance.now();
  /** The connection that has confirmed the channels last; undefined before. */
  #confirmedBy: unknown;

  /** @param connectionNow returns the connection that a client for a cluster has chosen, which it replaces without an event. */
  constructor(
    client: SubscriptionClient,
    inTime: (reply: Promise<unknown>) => Promise<unknown>,
    connectionNow: () => unknown,
  ) {
    this.#client = client;
    this.#inTime = inTime;
    this.#connectionNow = connectionNow;
    client.on('message', (channel, text) => this.#listeners.get(channel)?.onText(text));
    client.on('ready', () => {
      this.#mayMiss = this.#listeners.size > 0;
      void this.#beat();
    });
    this.#timer = setInterval(() => void this.#beat(), BEAT_MS).unref();
  }

  /** Resolves when Redis has confirmed the channel. */
  async add(channel: string, listener: ChannelListener): Promise<void> {
    this.#listeners.set(channel, listener);
    const connection = this.#connectionNow();
    await this.#inTime(this.#client.subscribe(channel));
    // The next beat compares it.
    this.#confirmedBy ??= connection;
  }

  async remove(channel: string): Promise<void> {
    this.#listeners.delete(channel);
    await this.#inTime(this.#client.unsubscribe(channel));
  }

  /** Lets Redis confirm the channels. Never rejects. */
  async #beat(): Promise<void> {
    if (this.#isBeating || this.#listeners.size === 0) return;
    this.#isBeating = true;
    const connection = this.#connectionNow();
    try {
      await this.#inTime(this.#client.subscribe(...this.#listeners.keys()));
      this.#confirmedMs = performance.now();
      if (this.#confirmedBy !== undefined && this.#confirmedBy !== connection) this.#mayMiss = true;
      this.#confirmedBy = connection;
      if (!this.#mayMiss) return;
      this.#mayMiss = false;
      for (const listener of this.#listeners.values()) listener.onMissed();
    } catch {
      this.#mayMiss = true;
      const isSilent = performance.now() - this.#confirmedMs >= SILENT_MS;
      if (!isSilent || this.#client.status !== 'ready') return;
      this.#confirmedMs = performance.now();
      this.#client.disconnect(true);
    } finally {
      this.#isBeating = false;
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#listeners.clear();
    this.#client.disconnect();
  }
}
