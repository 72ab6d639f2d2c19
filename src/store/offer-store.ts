/** Names an upstream. */
export interface UpstreamKey {
  readonly upstream: string;
  /** Command or URL of the upstream: another server under the same id has other lists. */
  readonly target: string;
}

/** Names the lists that one upstream shows to one kind of client. */
export interface OfferKey extends UpstreamKey {
  /** How the upstream is spoken to; `''` where lists are not kept apart by it. */
  readonly era: string;
  /** Capabilities of the client; `''` for the lists of everyone. */
  readonly capabilityKey: string;
}

/** Keeps the last good lists of upstreams, so that a restart serves them at once. Losing them costs a listing, nothing more. */
export interface OfferStore {
  /** Returns undefined where there are none, or they cannot be read. */
  read(key: OfferKey): Promise<string | undefined>;
  /** Replaces the lists as a whole. @throws when they cannot be written. */
  write(key: OfferKey, text: string): Promise<void>;
  remove(key: OfferKey): Promise<void>;
  /** Whether the upstream could not be listed when that was last tried. */
  hasFailed(key: UpstreamKey): Promise<boolean>;
  setFailed(key: UpstreamKey, hasFailed: boolean): Promise<void>;
  /** Returns when the upstream was last listed (ms since 1970), changed or not; undefined where that is not known. */
  listedAtMs(key: UpstreamKey): Promise<number | undefined>;
  /** Records that the upstream was listed now. */
  setListed(key: UpstreamKey): Promise<void>;
}
