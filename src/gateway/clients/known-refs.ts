import { type LimitName, LIMITS } from '../../limits.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import type { Principal } from '../../policy/principal.ts';
import type { SessionRef } from '../../store/session-store.ts';

/** The id of a session that another process has. */
interface KnownId {
  readonly id: KeptText;
  readonly ref: SessionRef;
  readonly view: string;
}

/** The references in ids that were opened before. Opening an id costs as much as passing a request on. */
export class KnownRefs {
  /** By the tag of the id. */
  readonly #refs = new KeptMap<KnownId>();
  readonly #onLimit: (limit: LimitName) => void;

  /** @param onLimit runs when all references are removed, because there are too many. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  add(id: string, ref: SessionRef, view: string): void {
    if (this.#refs.size >= LIMITS.knownSessionIds) {
      this.#onLimit('knownSessionIds');
      this.#refs.clear();
    }
    this.#refs.set(detach(tagOf(id)), { id: detach(id), ref, view });
  }

  /** Returns the reference in an id; undefined if it is not known, or belongs to another principal or view. */
  find(id: string, principal: Principal, view: string): SessionRef | undefined {
    const known = this.#refs.get(tagOf(id));
    if (known?.id !== id || known.ref.principal !== principal.key || known.view !== view) return undefined;
    return Date.now() < known.ref.expiresMs ? known.ref : undefined;
  }

  clear(): void {
    this.#refs.clear();
  }
}

/** Returns the authentication tag that ends a sealed id. Each id has its own; hashing a whole id would take 2 % of a call. */
export function tagOf(id: string): string {
  return id.slice(id.lastIndexOf('.') + 1);
}
