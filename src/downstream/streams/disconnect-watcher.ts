import type { Closing } from '../../gateway/front/client-http.ts';
import { ArraySet } from '../../small-collections.ts';

/** A request that ends when its client disconnects. */
interface Disconnectable {
  onDisconnect(): void;
}

export type InFlightRequests = Pick<ArraySet<Disconnectable>, 'delete'>;

/**
 * Notifies the requests of a connection when it closes. There is one listener per connection: a client that pipelines requests would
 * exceed Node's limit of listeners with one per request.
 */
export class DisconnectWatcher {
  readonly #inFlight = new WeakMap<Closing, ArraySet<Disconnectable>>();

  /** Watches the connection of a request. Returns the set that the request must be deleted from when it is answered. */
  watch(socket: Closing, request: Disconnectable): InFlightRequests {
    const requests = this.#inFlight.get(socket) ?? this.#listenTo(socket);
    requests.add(request);
    // The `close` event has been emitted already.
    if (socket.destroyed) request.onDisconnect();
    return requests;
  }

  #listenTo(socket: Closing): ArraySet<Disconnectable> {
    const requests = new ArraySet<Disconnectable>();
    this.#inFlight.set(socket, requests);
    socket.once('close', () => {
      for (const request of requests) request.onDisconnect();
    });
    return requests;
  }
}
