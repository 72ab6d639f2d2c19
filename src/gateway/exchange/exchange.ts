import type { Catalog } from '../../catalog/catalog.ts';
import type { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { Caller } from './caller.ts';
import type { MessageSink } from '../front.ts';

/** Something an upstream wants to know from a client, in words the client understands. */
export interface ClientQuestion {
  readonly upstream: string;
  readonly method: string;
  readonly params: RawObject;
  /** Answers the upstream, once; whatever comes after is dropped. */
  answer(answer: Answer): void;
  /** Tells the upstream that the client is at work; undefined when it does not want to know. */
  readonly onProgress: ((params: RawObject) => void) | undefined;
  /** Runs when the upstream wants no answer any more. */
  onWithdrawn(run: () => void): void;
}

/** Who asks, as long as one exchange lasts. */
export interface Client {
  readonly caller: Caller;
  readonly catalog: Catalog;
  /** What upstreams may use of it. */
  readonly clientCapabilities: RawObject;
  /** The lowest it wants to hear of. */
  readonly logLevel: Severity | undefined;
  /** Whether it wants log messages of this level. */
  wantsLog(level: string | undefined): boolean;
  /** Tells it about a request of its own. False when it cannot be told. */
  notify(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean;
  /** Tells it what belongs to no request of its own, now or later. */
  announce(method: string, params: RawObject | undefined): void;
  /** Is told that an upstream asks what it did not declare. */
  onUnsupportedRequest(method: string, params: RawObject, exchange: Exchange | undefined): void;
  /** Lets it be asked. Always answers the upstream, in bounded time. */
  ask(question: ClientQuestion, exchange: Exchange | undefined): void;
}

/** One request of a client and everything that belongs to it until it is answered. */
export interface Exchange {
  readonly client: Client;
  readonly request: Request;
  /** The request's own stream toward the client. */
  readonly sink: MessageSink;
  /** The client's progress token, as raw JSON; undefined when it asked for no progress. */
  readonly progressToken: string | undefined;
  /** The upstream that works on it. */
  readonly upstream: string | undefined;
  cancel(reason: string | undefined): void;
  /** Cancels it for the client that made it, which then gets no response. */
  cancelByClient(reason: string | undefined): void;
  /** Ends it with this error when the upstream ends the call, or cancels the call after a moment. */
  fail(error: GatewayError): void;
  /** Whether this is more progress than was told before, as it must be. */
  advances(progress: number): boolean;
  /** Gives its room at the upstream back: at the end, or already when it is the client who is waited for. */
  releaseSlot(): void;
}

/** Who is asked, and about which request of its own, where that is known. */
export interface Recipient {
  readonly client: Client;
  readonly exchange: Exchange | undefined;
  /** Whether the question can belong to no other request. */
  readonly isUnambiguous: boolean;
}
