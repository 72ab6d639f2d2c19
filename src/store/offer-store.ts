export interface UpstreamKey {
  readonly upstream: string;
  /** Command or URL of the upstream: another server under the same id has other lists. */
  readonly target: string;
}

/** Identifies the lists that one upstream shows to certain clients. */
export interface StoredOfferKey extends UpstreamKey {
  /** Era used with the upstream; `''` if its lists do not depend on the era. */
  readonly era: string;
  /** Capabilities of the client; `''` for clients of any capabilities. */
  readonly capabilityKey: string;
  /** Key of the principal that the lists are for; `''` for all principals. */
  readonly audience: string;
}

/** Learns what other processes write. */
export interface OfferListener {
  /** Another process has written these lists. */
  onWritten(key: StoredOfferKey): void;
  /** Others may have written lists that this process was not told of. */
  onMissed(): void;
}

/**
 * Stores the last good lists of upstreams, so that a restarted gateway serves them at once. A lost list costs one
 * listing, nothing more.
 */
export interface OfferStore {
  /** Returns the lists, or undefined if there are none or they cannot be read. */
  read(key: StoredOfferKey): Promise<string | undefined>;
  /** Replaces the lists. @throws if they cannot be written. */
  write(key: StoredOfferKey, text: string): Promise<void>;
  remove(key: StoredOfferKey): Promise<void>;
  /** Tells a listener from now on what other processes write. Undefined for a store of one process. @throws {GatewayError} `store-unavailable` */
  watch?(listener: OfferListener): Promise<void>;
  /** Returns whether the last attempt to list the upstream failed. */
  hasFailed(key: UpstreamKey): Promise<boolean>;
  setFailed(key: UpstreamKey, hasFailed: boolean): Promise<void>;
  /** Returns when the upstream was last listed (ms since 1970), changed or not; undefined where that is not known. */
  listedAtMs(key: UpstreamKey): Promise<number | undefined>;
  /** Records that the upstream was listed now. */
  setListed(key: UpstreamKey): Promise<void>;
}
