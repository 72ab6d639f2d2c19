import { detach } from './memo.ts';

/** Objects with more members have no shape. */
const MAX_MEMBERS = 12;
const MAX_NAME_CHARS = 64;
const MAX_SHAPES = 500;

/** Where objects of one kind stand in messages, and so whose members are alike. */
export class ShapeTree {
  #root = new KeyShape([], this);
  #shapes = 0;

  /** The shape without members. */
  get root(): KeyShape {
    return this.#root;
  }

  /** Counts one more. When there are too many, since a peer makes up names, all are forgotten. */
  count(): void {
    if (++this.#shapes < MAX_SHAPES) return;
    this.#shapes = 0;
    this.#root = new KeyShape([], this);
  }
}

/** The same text as V8 has it once for all, so that to compare it is to compare a pointer. */
function interned(text: string): string {
  return Object.keys({ [detach(text)]: undefined })[0] ?? text;
}

/**
 * The names of members, in their order, of objects that were seen: peers say the same things in the same order again and again, so
 * that a name need only be compared with the one that came there before.
 */
export class KeyShape {
  readonly names: readonly string[];
  /** The last of them; empty where there is none. */
  readonly name: string;
  /** How that is written with its colon, without blanks. */
  readonly #written: string;
  readonly #followers = new Map<string, KeyShape>();
  readonly #tree: ShapeTree;
  /** The two that followed last. */
  #next: KeyShape | undefined;
  #other: KeyShape | undefined;

  constructor(names: readonly string[], tree: ShapeTree) {
    this.names = names;
    this.name = names.at(-1) ?? '';
    this.#written = `"${this.name}":`;
    this.#tree = tree;
  }

  /** Characters of that with its quotes and its colon. */
  get chars(): number {
    return this.#written.length;
  }

  /** What follows where the next member begins like one of those that followed last, to the letter. */
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

  /** What follows when the next member has this name, which none before it may have; undefined where that is not kept. */
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
