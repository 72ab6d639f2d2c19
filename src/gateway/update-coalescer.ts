import type { RawObject } from '../json/json.ts';

/** Updates of one resource within this time are announced once at its start and once at its end. */
const WINDOW_MS = 25;

/** One source's updates of the last moment, by URI; with parameters where another one came since the announcement. */
type Window = Map<string, RawObject | undefined>;

/** Announces the first update of a resource at once, and those that follow closely together. */
export class UpdateCoalescer<Source> {
  readonly #announce: (source: Source, uri: string, params: RawObject) => void;
  readonly #windows = new Map<Source, Window>();

  constructor(announce: (source: Source, uri: string, params: RawObject) => void) {
    this.#announce = announce;
  }

  add(source: Source, uri: string, params: RawObject): void {
    const window = this.#windows.get(source);
    if (window?.has(uri) === true) {
      window.set(uri, params);
      return;
    }
    if (window === undefined) this.#open(source, [uri]);
    else window.set(uri, undefined);
    this.#announce(source, uri, params);
  }

  #open(source: Source, uris: readonly string[]): void {
    this.#windows.set(source, new Map(uris.map((uri) => [uri, undefined])));
    setTimeout(() => this.#close(source), WINDOW_MS).unref();
  }

  #close(source: Source): void {
    const waiting = [...(this.#windows.get(source) ?? [])].filter(([, params]) => params !== undefined);
    this.#windows.delete(source);
    if (waiting.length === 0) return;
    this.#open(
      source,
      waiting.map(([uri]) => uri),
    );
    for (const [uri, params] of waiting) if (params !== undefined) this.#announce(source, uri, params);
  }
}
