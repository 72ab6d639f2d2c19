import { appendFileSync, closeSync, openSync, readFileSync, readSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { object, parse, string } from './json.ts';

/** A change outside the processes of an upstream, as when files change below a real server. */
export type Change =
  | { readonly kind: 'grown' | 'shrunk' | 'visited'; readonly nonce: string }
  | { readonly kind: 'touched'; readonly uri: string };

/** A file of changes that all processes of one upstream watch. */
export class World {
  readonly grown = new Set<string>();
  /** The nonces of the URLs that were visited. */
  readonly visited = new Set<string>();
  readonly #file: string;
  readonly #listeners = new Set<(change: Change) => void>();
  #offset = 0;
  #rest = '';

  constructor(dir: string) {
    this.#file = join(dir, 'world.jsonl');
    writeFileSync(this.#file, '', { flag: 'a' });
    this.#read(readFileSync(this.#file, 'utf8'));
    this.#offset = Buffer.byteLength(readFileSync(this.#file));
    watch(this.#file, { persistent: false }, () => this.#catchUp());
  }

  listen(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  add(change: Change): void {
    appendFileSync(this.#file, `${JSON.stringify(change)}\n`);
    this.#catchUp();
  }

  #catchUp(): void {
    const fd = openSync(this.#file, 'r');
    const buffer = Buffer.alloc(65_536);
    const bytes = readSync(fd, buffer, 0, buffer.length, this.#offset);
    closeSync(fd);
    this.#offset += bytes;
    this.#read(buffer.toString('utf8', 0, bytes));
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const { kind, nonce, uri } = object(parse(line));
      if (kind === 'grown') this.grown.add(string(nonce));
      if (kind === 'visited') this.visited.add(string(nonce));
      if (kind === 'shrunk') this.grown.delete(string(nonce));
      const change = changeOf(string(kind), string(nonce), string(uri));
      for (const listener of this.#listeners) listener(change);
    }
  }
}

function changeOf(kind: string, nonce: string, uri: string): Change {
  if (kind === 'touched') return { kind, uri };
  return { kind: kind === 'grown' || kind === 'shrunk' ? kind : 'visited', nonce };
}
