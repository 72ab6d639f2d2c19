/** What changes in a session after `initialize`. Everything else about it is sealed into its id. */
export interface SessionRecord {
  readonly logLevel?: string;
  /** URIs as the client knows them. */
  readonly subscriptions: readonly string[];
}

/**
 * What outlives a session's time in memory, by the id inside of the sealed one. Every promise settles when the change is where
 * the next process will find it, and rejects when it may not be.
 */
export interface SessionStore extends AsyncDisposable {
  /** Undefined when nothing was saved, or the session has ended. */
  load(id: string): Promise<SessionRecord | undefined>;
  /** Replaces what was saved before. Does nothing for a session that has ended. */
  save(id: string, record: SessionRecord): Promise<void>;
  /** Ends a session for good. @param untilMs ms since the epoch, when the sealed id will have expired by itself. */
  end(id: string, untilMs: number): Promise<void>;
  isEnded(id: string): Promise<boolean>;
}
