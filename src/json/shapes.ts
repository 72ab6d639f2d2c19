import { detach } from './kept-text.ts';

/** Objects with more members get no shape. */
const MAX_MEMBERS = 12;
const MAX_NAME_CHARS = 64;
const MAX_SHAPES = 500;

/** The shapes of objects at one place in messages, which mostly have the same members. */
export class ShapeTree {
  #root = new KeyShape([], this);
  #shapes = 0;

  /** The shape of an object without members. */
  get root(): KeyShape {
    return this.#root;
  }

  /** Counts a new shape. Discards all shapes when there are too many, because a peer may invent names. */
  count(): void {
    if (++this.#shapes < MAX_SHAPES) return;
    this.#shapes = 0;
    this.#root = new KeyShape([], this);
  }
}

/** Returns V8's internalised copy of the text, so that comparing two names compares pointers. */
function interned(text: string): string {
  return Object.keys({ [detach(text)]: undefined })[0] ?? text;
}

/**
 * The member names of an object, in order. Peers send the same members in the same order, so a name is mostly equal to
 * the one that followed last time.
 */
export class KeyShape {
  readonly names: readonly string[];
  /** The last of the names; empty if there is none. */
  readonly name: string;
  /** The last name as JSON with its colon, without white space. */
  readonly #written: string;
  readonly #followers = new Map<string, KeyShape>();
  readonly #tree: ShapeTree;
  /** The two latest followers. */
  #next: KeyShape | undefined;
  #other: KeyShape | undefined;

  constructor(names: readonly string[], tree: ShapeTree) {
    this.names = names;
    this.name = names.at(-1) ?? '';
    this.#written = `"${this.name}":`;
    this.#tree = tree;
  }

  /** Length of the last name with its quotes and colon. */
  get chars(): number {
    return this.#written.length;
  }

  /** Returns the latest follower whose name stands at this position of the text, or undefined. */
  nextAt(text: string, at: number): KeyShape | undefined {
    const next = this.#next;
    if (next === undefined || next.#isAt(text, at)) return next;
    const other = this.#other;
    if (other === undefined || !other.#isAt(text, at)) return undefined;
    this.#other = next;
    this.#next = other;
    return other;
  }

  #isAt(text: string, at: number): boolean {
    const written = this.#written;
    for (let i = 0; i < written.length; i++) if (text.charCodeAt(at + i) !== written.charCodeAt(i)) return false;
    return true;
  }

  /**
   * Returns the shape with this name appended, or undefined if that shape is not kept. The name must not be among
   * `names`.
   */
  follow(name: string): KeyShape | undefined {
    let follower = this.#followers.get(name);
    if (follower === undefined) {
      if (this.names.length === MAX_MEMBERS || name.length > MAX_NAME_CHARS) return undefined;
      const own = interned(name);
      if (own !== name) return undefined;
      follower = new KeyShape([...this.names, own], this.#tree);
      this.#followers.set(own, follower);
      this.#tree.count();
    }
    if (follower !== this.#next) {
      this.#other = this.#next;
      this.#next = follower;
    }
    return follower;
  }
}
