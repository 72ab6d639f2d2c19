/** Up to this size a message is not counted, so that most messages cost nothing here. */
export const UNCOUNTED_BYTES = 65_536;
/** One upstream may use this fraction (1/n) of the budget, so that others find room. */
const UPSTREAM_FRACTION = 2;
/** While the oldest messages of all upstreams have less than this many times the budget, they are read on. */
const OVERDRAFT = 2;
/** The bytes of large messages that are read or passed on in one turn of the event loop. Other requests are served in between. */
const TURN_BYTES = 524_288;

/** A reader of one upstream connection that can be stopped between two chunks. */
export interface HoldableReader {
  hold(): void;
  resume(): void;
}

export interface ReceivedMessage {
  /** Sets the number of its bytes so far; 0 when it is complete or will not be read on. */
  update(bytes: number): void;
}

/** All counted messages of one upstream, the oldest first. */
interface Share {
  readonly upstream: string;
  readonly entries: Set<Entry>;
  bytes: number;
}

interface Entry {
  readonly share: Share;
  readonly reader: HoldableReader;
  bytes: number;
}

/**
 * Bounds the bytes of messages that are being received from all upstreams, in all and for each turn of the event loop. Beyond a bound, readers are
 * held, so that their upstreams have to wait.
 *
 * The oldest message of each upstream is read on, so that no upstream waits for another one that sends slowly. If those messages alone have more than
 * twice the bound, only the oldest of all is read. So there are at most three times the bound and one message, besides the first two chunks of each.
 */
export class ReceivingBudget {
  readonly #totalBytes: number;
  readonly #bytesPerTurn: number;
  readonly #onHeld: () => void;
  readonly #shares = new Map<string, Share>();
  /** In the order in which they became large. */
  readonly #entries = new Set<Entry>();
  /** Those for which there is no room. */
  readonly #held = new Set<Entry>();
  /** Those that wait for another turn of the event loop, in order. */
  readonly #queue = new Set<Entry>();
  #turnBytes = 0;
  #isTurnCounted = false;
  #bytes = 0;

  /** @param onHeld called each time a reader has to wait for room. */
  constructor(totalBytes: number, onHeld: () => void, bytesPerTurn: number = TURN_BYTES) {
    this.#totalBytes = totalBytes;
    this.#bytesPerTurn = bytesPerTurn;
    this.#onHeld = onHeld;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts the messages of a reader, one after the other. */
  join(upstream: string, reader: HoldableReader): ReceivedMessage {
    let entry: Entry | undefined;
    return {
      update: (bytes) => {
        if (bytes > UNCOUNTED_BYTES) {
          entry ??= this.#add(upstream, reader);
          this.#grow(entry, bytes);
        } else if (entry !== undefined) {
          const ended = entry;
          entry = undefined;
          this.#remove(ended);
        }
      },
    };
  }

  #add(upstream: string, reader: HoldableReader): Entry {
    let share = this.#shares.get(upstream);
    if (share === undefined) this.#shares.set(upstream, (share = { upstream, entries: new Set(), bytes: 0 }));
    const entry: Entry = { share, reader, bytes: 0 };
    share.entries.add(entry);
    this.#entries.add(entry);
    return entry;
  }

  #grow(entry: Entry, bytes: number): void {
    const more = bytes - entry.bytes;
    // With fewer bytes than before, an event was passed on, and the next one has begun.
    const workBytes = more >= 0 ? more : entry.bytes + bytes;
    entry.bytes = bytes;
    entry.share.bytes += more;
    this.#bytes += more;
    this.#countTurn(workBytes);
    if (more < 0) this.#findRoom();
    if (this.#held.has(entry) || this.#queue.has(entry)) return;
    const mayRead = this.#mayRead(entry, 0);
    if (mayRead && this.#turnBytes < this.#bytesPerTurn) return;
    entry.reader.hold();
    if (mayRead) this.#queue.add(entry);
    else this.#hold(entry);
  }

  #hold(entry: Entry): void {
    this.#held.add(entry);
    this.#onHeld();
  }

  #countTurn(bytes: number): void {
    this.#turnBytes += bytes;
    if (this.#isTurnCounted) return;
    this.#isTurnCounted = true;
    setImmediate(() => this.#beginTurn());
  }

  /**
   * Lets the first readers of the queue read. The message of each may end with its next chunk and is then passed on, so all its bytes are
   * expected.
   */
  #beginTurn(): void {
    this.#isTurnCounted = false;
    this.#turnBytes = 0;
    let expectedBytes = 0;
    let chunks = 0;
    for (const entry of this.#queue) {
      if (chunks > 0 && expectedBytes + entry.bytes > this.#bytesPerTurn) break;
      this.#queue.delete(entry);
      if (!this.#mayRead(entry, chunks * UNCOUNTED_BYTES)) {
        this.#hold(entry);
        continue;
      }
      chunks++;
      expectedBytes += entry.bytes;
      entry.reader.resume();
    }
    if (this.#queue.size > 0) this.#countTurn(0);
  }

  #remove(entry: Entry): void {
    const { share } = entry;
    share.entries.delete(entry);
    share.bytes -= entry.bytes;
    this.#bytes -= entry.bytes;
    this.#entries.delete(entry);
    if (share.entries.size === 0) this.#shares.delete(share.upstream);
    this.#countTurn(entry.bytes);
    if (this.#held.delete(entry) || this.#queue.delete(entry)) entry.reader.resume();
    this.#findRoom();
  }

  /**
   * Moves the readers to the queue for which there is room; the caller has counted the turn. Each is expected to read one more chunk before
   * it is judged again. None is resumed here, in the events of another reader. The parser of a TLS connection reads at once, and only one
   * of them can do so at a time.
   */
  #findRoom(): void {
    let expectedBytes = 0;
    for (const entry of this.#held) {
      if (!this.#mayRead(entry, expectedBytes)) continue;
      expectedBytes += UNCOUNTED_BYTES;
      this.#held.delete(entry);
      this.#queue.add(entry);
    }
  }

  #mayRead(entry: Entry, expectedBytes: number): boolean {
    const { share } = entry;
    const bytes = this.#bytes + expectedBytes;
    const shareBytes = share.bytes + expectedBytes;
    if (bytes < this.#totalBytes && shareBytes < this.#totalBytes / UPSTREAM_FRACTION) return true;
    if (entry !== first(share.entries)) return false;
    return entry === first(this.#entries) || this.#oldestBytes() < OVERDRAFT * this.#totalBytes;
  }

  #oldestBytes(): number {
    let bytes = 0;
    for (const { entries } of this.#shares.values()) bytes += first(entries)?.bytes ?? 0;
    return bytes;
  }
}

function first<T>(items: Iterable<T>): T | undefined {
  for (const item of items) return item;
  return undefined;
}
