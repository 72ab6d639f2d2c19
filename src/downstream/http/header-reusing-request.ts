import { IncomingMessage, type IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { KnownHeaders } from './known-headers.ts';

/** Headers of the last request on each connection. Those of the next one are mostly equal. */
const last = new WeakMap<Socket, KnownHeaders>();

/**
 * A request that reuses the headers of the one before on its connection. Node merges all headers of every request, only to read `Host`
 * and `Expect`; here that is done once for equal headers.
 */
export class HeaderReusingRequest extends IncomingMessage {
  #head: KnownHeaders | undefined;
  #isCompared = false;
  #headers: IncomingHttpHeaders | undefined;

  static {
    // Node has an accessor here, which its types call a property.
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

  /** The equal headers of an earlier request, if any. */
  get head(): KnownHeaders | undefined {
    if (!this.#isCompared) {
      const head = last.get(this.socket);
      if (head?.isOf(this.rawHeaders) === true) this.#head = head;
      this.#isCompared = true;
    }
    return this.#head;
  }

  /** Sets the headers that the next requests are compared with. */
  set head(head: KnownHeaders | undefined) {
    this.#head = head;
    if (head !== undefined) last.set(this.socket, head);
  }

  #read(): IncomingHttpHeaders {
    this.#headers ??= this.head?.mergedIn(this.rawHeaders) ?? Reflect.get(IncomingMessage.prototype, 'headers', this);
    return this.#headers;
  }
}
