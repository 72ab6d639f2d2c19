import { IncomingMessage, type IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { KnownHeaders } from './known-headers.ts';

/** The last on each connection: the next one's headers are mostly the same. */
const last = new WeakMap<Socket, KnownHeaders>();

/**
 * A request that knows the one before it on its connection. Node reads and merges all headers of every request, only to look at
 * `Host` and `Expect`; here that is done once, where the next ones say the same.
 */
export class HeaderReusingRequest extends IncomingMessage {
  #head: KnownHeaders | undefined;
  #isCompared = false;
  #headers: IncomingHttpHeaders | undefined;

  static {
    // Where Node has an accessor, which its types call a property.
    Object.defineProperty(HeaderReusingRequest.prototype, 'headers', {
      configurable: true,
      get(this: HeaderReusingRequest) {
        return this.#read();
      },
      set(this: HeaderReusingRequest, headers: IncomingHttpHeaders) {
        this.#headers = headers;
      },
    });
  }

  /** What is known of its headers by an earlier one. */
  get head(): KnownHeaders | undefined {
    if (!this.#isCompared) {
      const head = last.get(this.socket);
      if (head?.isOf(this.rawHeaders) === true) this.#head = head;
      this.#isCompared = true;
    }
    return this.#head;
  }

  /** What the next ones are compared with. */
  set head(head: KnownHeaders | undefined) {
    this.#head = head;
    if (head !== undefined) last.set(this.socket, head);
  }

  #read(): IncomingHttpHeaders {
    this.#headers ??= this.head?.mergedIn(this.rawHeaders) ?? Reflect.get(IncomingMessage.prototype, 'headers', this);
    return this.#headers;
  }
}
