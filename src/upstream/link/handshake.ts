import { resultWithin } from '../../deadline.ts';
import { GatewayError, upstreamError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { MODERN_REVISIONS, type ModernRevision } from '../../protocol/revisions.ts';
import { discover, type DiscoverOutcome } from './discover.ts';
import { isOfCredentials } from './era-evidence.ts';
import type { Eras, Finding, HandshakePlan } from './eras.ts';
import { initialize, type InitializeOutcome, type ServerHello } from './initialize.ts';
import type { Proposals } from './proposals.ts';
import type { Connection } from '../rpc/connection.ts';

export interface HandshakeParts {
  readonly connection: Connection;
  readonly clientInfo: RawObject;
  readonly clientCapabilities: RawObject;
  readonly eras: Eras;
  readonly startMs: number;
  readonly proposals: Proposals;
}

/** The outcome of the handshakes on one connection. Findings from a failure are recorded only after another attempt succeeds. */
export type HandshakeOutcome =
  | { readonly kind: 'open'; readonly hello: ServerHello; readonly findings: readonly Finding[] }
  /** The connection cannot be used. `next`: the handshakes to try on a new connection of the same transport. */
  | {
      readonly kind: 'unsuitable';
      readonly reason: GatewayError;
      readonly findings: readonly Finding[];
      readonly next: HandshakePlan | undefined;
    };

/** Without an answer to `server/discover`, a program gets `initialize` this long after its first byte. */
const SILENCE_MS = 2_000;
/** A program that sends no byte at all gets `initialize` after this long. */
const MUTE_MS = 5_000;
/** Longest wait for the answer to the second of two handshakes after the answer to the first. */
const SECOND_ANSWER_MS = 2_000;

const MODERN_YES: Finding = { era: 'modern', speaks: 'yes', evidence: 'server/discover answered' };
const LEGACY_YES: Finding = { era: 'legacy', speaks: 'yes', evidence: 'initialize answered' };
const MODERN_REFUSED: Finding = { era: 'modern', speaks: 'no', evidence: 'server/discover refused' };
const LEGACY_REFUSED: Finding = { era: 'legacy', speaks: 'no', evidence: 'initialize refused' };

/**
 * Tries the planned handshakes on one connection that can carry either era.
 *
 * @throws {GatewayError} if another attempt cannot succeed either.
 */
export function handshake(parts: HandshakeParts, eras: HandshakePlan): Promise<HandshakeOutcome> {
  const [first, second] = eras;
  if (first === 'legacy') return legacyFirst(parts, second === 'modern');
  return second === 'legacy' ? modernFirst(parts) : modernOnly(parts, parts.startMs);
}

/**
 * Sends `server/discover` and no `initialize`.
 *
 * @throws {GatewayError} if the upstream is modern and cannot be used, or asks for credentials.
 */
export async function modernOnly(parts: HandshakeParts, patienceMs: number): Promise<HandshakeOutcome> {
  const discovered = await discover(parts.connection, parts.clientInfo, patienceMs);
  if (discovered.kind === 'modern') return openModern(parts, discovered.hello);
  // A remote server without an answer may be in trouble. Of a program, silence to an unknown method is known.
  return rejectModern(parts, discovered, true);
}

async function legacyFirst(parts: HandshakeParts, mayBeModern: boolean): Promise<HandshakeOutcome> {
  const { connection, clientInfo, startMs } = parts;
  const outcome = await initializeOn(parts);
  if (outcome.kind === 'legacy') return openLegacy(parts, outcome.hello, []);
  const reason = outcome.error;
  if (outcome.isUnfinished === true) {
    return { kind: 'unsuitable', reason, findings: [], next: mayBeModern ? ['legacy', 'modern'] : ['legacy'] };
  }
  if (!mayBeModern) return { kind: 'unsuitable', reason, findings: [LEGACY_REFUSED], next: undefined };
  const discovered = await discover(connection, clientInfo, startMs);
  if (discovered.kind === 'modern') return openModern(parts, discovered.hello, [LEGACY_REFUSED]);
  // The program has ended after the refusal, or it supports the modern era and its SDK answers nothing more.
  const isUnanswered = discovered.kind === 'unknown' && (outcome.isModern || connection.isClosed);
  const next: HandshakePlan | undefined = isUnanswered ? ['modern'] : undefined;
  const error = discovered.kind === 'unknown' && discovered.isModern ? discovered.error : reason;
  return { kind: 'unsuitable', reason: error, findings: [LEGACY_REFUSED], next };
}

/**
 * Sends `server/discover`, and `initialize` as well if there is no answer for a while. The first usable answer decides, even a
 * late one to `server/discover`.
 */
async function modernFirst(parts: HandshakeParts): Promise<HandshakeOutcome> {
  const { connection, clientInfo, startMs, eras } = parts;
  const decided = new AbortController();
  const discovering = discover(connection, clientInfo, startMs, decided.signal);
  const first =
    eras.modern.speaks === 'yes' ? await discovering : await answerOrSilence(discovering, connection, startMs);
  if (first === 'silent') return await raceHandshakes(parts, discovering, decided);
  if (first.kind === 'modern') return openModern(parts, first.hello);
  const refused = rejectModern(parts, first);
  if (connection.isClosed) return { ...refused, next: ['legacy'] };
  return await fallBackToInitialize(parts, refused.findings);
}

async function fallBackToInitialize(parts: HandshakeParts, findings: readonly Finding[]): Promise<HandshakeOutcome> {
  const outcome = await tryInitialize(parts);
  if (outcome.kind === 'legacy') return openLegacy(parts, outcome.hello, findings);
  const { error } = outcome;
  // The program has ended after it refused server/discover.
  if (parts.connection.isClosed) return { kind: 'unsuitable', reason: error, findings, next: ['legacy'] };
  if (outcome.kind === 'failed') throw error;
  return { kind: 'unsuitable', reason: error, findings: [], next: undefined };
}

/** Sends `initialize` while `server/discover` is in flight on the same connection. */
async function raceHandshakes(
  parts: HandshakeParts,
  discovering: Promise<DiscoverOutcome>,
  decided: AbortController,
): Promise<HandshakeOutcome> {
  const { connection } = parts;
  const initializing = tryInitialize(parts);
  const first = await Promise.race([discovering, initializing]);
  const silent: Finding = { era: 'modern', speaks: 'no', evidence: 'server/discover not answered' };
  if (first.kind === 'legacy' && 'hello' in first) {
    decided.abort();
    return openLegacy(parts, first.hello, [silent]);
  }
  if (first.kind === 'modern') {
    const second = await resultWithin(initializing, SECOND_ANSWER_MS);
    if (second?.kind === 'refused' && !connection.isClosed) return openModern(parts, first.hello);
    // The SDK of the upstream may have begun a legacy session in this process.
    return restartModern(upstreamError('upstream-unavailable', connection.upstream, 'got both handshakes'));
  }
  if (first.kind === 'refused' || first.kind === 'failed') {
    const { error } = first;
    const isProof = first.kind === 'refused' && first.isModern;
    const discovered = isProof ? await resultWithin(discovering, SECOND_ANSWER_MS) : await discovering;
    if (discovered?.kind === 'modern') return openModern(parts, discovered.hello);
    if (isProof) return restartModern(error);
    if (!connection.isClosed) return { kind: 'unsuitable', reason: error, findings: [], next: undefined };
    return { kind: 'unsuitable', reason: error, findings: [silent], next: ['legacy'] };
  }
  const refused = rejectModern(parts, first);
  const second = await initializing;
  if (second.kind === 'legacy') return openLegacy(parts, second.hello, refused.findings);
  const next: HandshakePlan | undefined = connection.isClosed ? ['legacy'] : undefined;
  return { kind: 'unsuitable', reason: second.error, findings: refused.findings, next };
}

function initializeOn({
  connection,
  clientCapabilities,
  clientInfo,
  startMs,
  proposals,
}: HandshakeParts): Promise<InitializeOutcome> {
  connection.setLegacy();
  return initialize(connection, clientCapabilities, clientInfo, startMs, proposals);
}

/** Sends `initialize`. An error of the transport is an outcome, too. */
async function tryInitialize(
  parts: HandshakeParts,
): Promise<InitializeOutcome | { readonly kind: 'failed'; readonly error: GatewayError }> {
  try {
    return await initializeOn(parts);
  } catch (thrown) {
    if (thrown instanceof GatewayError) return { kind: 'failed', error: thrown };
    throw thrown;
  }
}

/** Returns the outcome for an upstream that is used in the modern era, in the revision of its hello. */
function openModern(
  { connection, clientInfo }: HandshakeParts,
  hello: ServerHello<ModernRevision>,
  others: readonly Finding[] = [],
): HandshakeOutcome {
  connection.setModern(hello.revision, clientInfo);
  return { kind: 'open', hello, findings: [MODERN_YES, ...others] };
}

function openLegacy({ connection }: HandshakeParts, hello: ServerHello, others: readonly Finding[]): HandshakeOutcome {
  connection.setLegacy();
  return { kind: 'open', hello, findings: [LEGACY_YES, ...others] };
}

function restartModern(reason: GatewayError): HandshakeOutcome {
  return { kind: 'unsuitable', reason, findings: [MODERN_YES], next: ['modern'] };
}

/** Returns the outcome for a connection that is not modern. @throws {GatewayError} if the legacy era cannot be used either. */
function rejectModern(
  { connection: { upstream }, eras }: HandshakeParts,
  discovered: Exclude<DiscoverOutcome, { kind: 'modern' }>,
  isDoubtful = false,
): Extract<HandshakeOutcome, { kind: 'unsuitable' }> {
  if (discovered.kind === 'legacy') {
    const event = `does not support revision ${MODERN_REVISIONS.join(' or ')}`;
    const reason = upstreamError('upstream-unavailable', upstream, event);
    return { kind: 'unsuitable', reason, findings: [MODERN_REFUSED], next: undefined };
  }
  const { error, isAnswered, isModern } = discovered;
  // A server with the errors of the modern era gets a legacy handshake only if that era has worked before.
  if ((isModern && eras.legacy.speaks !== 'yes') || isOfCredentials(error)) throw error;
  const evidence = isAnswered ? 'server/discover failed' : 'server/discover not answered';
  const finding: Finding = { era: 'modern', speaks: 'no', evidence, isDoubtful: isDoubtful || isAnswered };
  return { kind: 'unsuitable', reason: error, findings: [finding], next: undefined };
}

/** Resolves with the outcome, or with `silent` if the program does not answer for a while. */
async function answerOrSilence(
  discovering: Promise<DiscoverOutcome>,
  connection: Connection,
  startMs: number,
): Promise<DiscoverOutcome | 'silent'> {
  const answerWithin = (ms: number, answer: Promise<DiscoverOutcome | undefined>) =>
    resultWithin(answer, Math.min(ms, startMs / 2));
  const afterFirstByte = connection.firstByte.then(() => answerWithin(SILENCE_MS, discovering));
  return (await answerWithin(MUTE_MS, Promise.race([discovering, afterFirstByte]))) ?? 'silent';
}
