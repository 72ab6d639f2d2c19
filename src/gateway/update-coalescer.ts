import type { RawObject } from '../json/json.ts';

/** A resource is announced at most twice in this time, which is also the time for which one source waits for the others. */
const WINDOW_MS = 25;

/** The updates of one resource in the current window. */
interface Updates<Source> {
  /** The sources of the updates that are not announced yet. */
  sources: Set<Source>;
  params: RawObject;
  /** True if the resource was announced in this window, so that further updates wait for its end. */
  isAnnounced: boolean;
  /** True if the updates wait for other sources no longer than to the end of this window. */
  isLastWait: boolean;
}

/** The updates of one key in the current window, by URI. */
type Window<Source> = Map<string, Updates<Source>>;

export interface UpdateCoalescerParts<Source> {
  announce(sources: ReadonlySet<Source>, uri: string, params: RawObject): void;
  /** Returns whether all sources that may report the same change are among these. */
  areAll(sources: ReadonlySet<Source>, uri: string): boolean;
  /** Called for each update that a later one replaces. */
  onMerged(): void;
}

/**
 * Announces a change of a resource once, though several sources report it: when the last of them has, or after a window. So no change is
 * lost if a source reports its own changes only. Changes that follow closely are announced together, at the end of a window.
 */
export class UpdateCoalescer<Source> {
  readonly #parts: UpdateCoalescerParts<Source>;
  readonly #windows = new Map<unknown, Window<Source>>();

  constructor(parts: UpdateCoalescerParts<Source>) {
    this.#parts = parts;
  }

  /**
   * Adds an update.
   *
   * @param key equal for sources whose updates reach the same listeners.
   */
  add(key: unknown, source: Source, uri: string, params: RawObject): void {
    const open = this.#windows.get(key);
    const window = open ?? this.#open(key);
    const updates = window.get(uri) ?? {
      sources: new Set(),
      params,
      isAnnounced: false,
      isLastWait: open === undefined,
    };
    window.set(uri, updates);
    if (updates.sources.size > 0) this.#parts.onMerged();
    updates.params = params;
    if (updates.sources.has(source)) return;
    updates.sources.add(source);
    if (!updates.isAnnounced && this.#parts.areAll(updates.sources, uri)) this.#announce(uri, updates);
  }

  #open(key: unknown): Window<Source> {
    const window: Window<Source> = new Map();
    this.#windows.set(key, window);
    setTimeout(() => this.#close(key, window), WINDOW_MS).unref();
    return window;
  }

  #close(key: unknown, window: Window<Source>): void {
    this.#windows.delete(key);
    const waiting = [...window].filter(([, { sources }]) => sources.size > 0);
    if (waiting.length === 0) return;
    const next = this.#open(key);
    for (const [uri, updates] of waiting) {
      next.set(uri, updates);
      updates.isAnnounced = false;
      if (updates.isLastWait || this.#parts.areAll(updates.sources, uri)) this.#announce(uri, updates);
      else updates.isLastWait = true;
    }
  }

  #announce(uri: string, updates: Updates<Source>): void {
    const { sources, params } = updates;
    updates.sources = new Set();
    updates.isAnnounced = true;
    updates.isLastWait = false;
    this.#parts.announce(sources, uri, params);
  }
}
