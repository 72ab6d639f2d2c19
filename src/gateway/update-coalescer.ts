import type { RawObject } from '../json/json.ts';

/** Updates of one resource within this time are announced once at its start and once at its end. */
const WINDOW_MS = 25;

/** Updates that arrived after the announcement at the start of a window. */
interface Waiting<Source> {
  readonly sources: Set<Source>;
  /** Params of the latest update. */
  params: RawObject;
}

/** The updates of one key in the current window, by URI. */
type Window<Source> = Map<string, Waiting<Source> | undefined>;

/** Announces the first update of a resource at once, and those that follow closely in one announcement. */
export class UpdateCoalescer<Source> {
  readonly #announce: (sources: Iterable<Source>, uri: string, params: RawObject) => void;
  readonly #onMerged: () => void;
  readonly #windows = new Map<unknown, Window<Source>>();

  /** @param onMerged called for each update that a later one replaces. */
  constructor(announce: (sources: Iterable<Source>, uri: string, params: RawObject) => void, onMerged: () => void) {
    this.#announce = announce;
    this.#onMerged = onMerged;
  }

  /**
   * Adds an update.
   *
   * @param key equal for sources whose updates reach the same listeners.
   */
  add(key: unknown, source: Source, uri: string, params: RawObject): void {
    const window = this.#windows.get(key);
    if (window?.has(uri) === true) {
      const waiting = window.get(uri);
      if (waiting === undefined) window.set(uri, { sources: new Set([source]), params });
      else {
        this.#onMerged();
        waiting.sources.add(source);
        waiting.params = params;
      }
      return;
    }
    if (window === undefined) this.#open(key, [uri]);
    else window.set(uri, undefined);
    this.#announce([source], uri, params);
  }

  #open(key: unknown, uris: readonly string[]): void {
    this.#windows.set(key, new Map(uris.map((uri) => [uri, undefined])));
    setTimeout(() => this.#close(key), WINDOW_MS).unref();
  }

  #close(key: unknown): void {
    const updates = [...(this.#windows.get(key) ?? [])].flatMap(([uri, waiting]) =>
      waiting === undefined ? [] : [{ uri, ...waiting }],
    );
    this.#windows.delete(key);
    if (updates.length === 0) return;
    this.#open(
      key,
      updates.map(({ uri }) => uri),
    );
    for (const { sources, uri, params } of updates) this.#announce(sources, uri, params);
  }
}
