import { IncomingMessage, type IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { KnownHeaders } from './known-headers.ts';

/** Headers of the last request on each connection. Those of the next request are mostly equal. */
const last = new WeakMap<Socket, KnownHeaders>();

/**
 * A request that reuses the merged headers of the previous request on its connection. Node merges the headers of every
 * request only to read `Host` and `Expect`; this class merges equal headers once.
 */
export class HeaderReusingRequest extends IncomingMessage {
  #head: KnownHeaders | undefined;
  #isCompared = false;
  #headers: IncomingHttpHeaders | undefined;

  static {
    // Node defines an accessor here, which its types declare as a property.
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

  /** The headers of the previous request, if they are equal. */
  get head(): KnownHeaders | undefined {
    if (!this.#isCompared) {
      const head = last.get(this.socket);
      if (head?.isOf(this.rawHeaders) === true) this.#head = head;
      this.#isCompared = true;
    }
    return this.#head;
  }

  /** Sets the headers to compare the next requests with. */
  set head(head: KnownHeaders | undefined) {
    this.#head = head;
    if (head !== undefined) last.set(this.socket, head);
  }

  #read(): IncomingHttpHeaders {
    this.#headers ??= this.head?.mergedIn(this.rawHeaders) ?? Reflect.get(IncomingMessage.prototype, 'headers', this);
    return this.#headers;
  }
}
