import type { GatewayError } from '../errors.ts';
import type { Proof } from '../policy/callers.ts';
import type { Credential } from '../upstream/http/request-credentials.ts';
import type { StepUp } from './step-up.ts';
import { getOrMake } from '../map-entries.ts';

/** Longest pause after a failure. */
export const LAST_RETRY_MS = 30_000;

/** A credential with its times, in monotonic ms. */
export interface Held {
  readonly credential: Credential;
  /** Those besides the ones of the settings. */
  readonly scopes: readonly string[];
  readonly freshUntilMs: number;
  readonly subjectFreshUntilMs: number;
  readonly subjectEndMs: number;
  readonly usableUntilMs: number;
  /** True if the upstream has refused it with 401, which may have been about one request. */
  isDoubtful: boolean;
}

/** A failure to get a credential, with the pause after it. */
export interface Failure {
  readonly error: GatewayError;
  /** Refused for good, denied for now, or the issuer could not be asked. */
  readonly kind: 'refused' | 'denied' | 'unanswered';
  /** The last verification of the subject before it, or before the first one of several in a row. */
  readonly verification: number;
  readonly times: number;
  /** In monotonic ms. */
  readonly retryAtMs: number;
}

/** The state of one subject: what credentials of its audience are got for. It says nothing about another one. */
export interface Entry {
  readonly audience: Audience;
  readonly subject: Proof | undefined;
  held: Held | undefined;
  /** The last answer of the issuer, if it gave out no credential. */
  failure: Failure | undefined;
  /** True if the issuer could not be asked about it. */
  isUnanswered: boolean;
  /** In monotonic ms. */
  renewableAtMs: number;
  acquiring: Promise<Credential> | undefined;
}

/** The state of one audience, with that of each of its subjects. */
export interface Audience {
  readonly key: string;
  readonly stepUp: StepUp;
  readonly entries: Map<Proof | undefined, Entry>;
  /** The one that was used last; undefined before that. */
  present: Entry | undefined;
  /** The last failure, if it would have been the same with any subject. */
  outage: Failure | undefined;
  /** The length of its credentials and subjects, when they were counted last. */
  chars: number;
}

/** Returns the length of all credentials of an audience, and of the tokens that they were got for. */
export function charsOf({ entries }: Audience): number {
  let chars = 0;
  for (const { held, subject } of entries.values()) {
    for (const text of held?.credential.headers ?? []) chars += text.length;
    chars += subject?.token?.length ?? 0;
  }
  return chars;
}

export function usableIn({ held }: Entry, nowMs: number): Held | undefined {
  return held !== undefined && nowMs < held.usableUntilMs ? held : undefined;
}

/** Returns the failure because of which another subject may be used; a denial counts during its pause only. */
export function refusalOf(entry: Entry | undefined, nowMs: number): Failure | undefined {
  const failure = entry?.failure;
  if (entry === undefined || failure === undefined) return undefined;
  // One that the upstream has refused would be refused again.
  if (usableIn(entry, nowMs)?.isDoubtful === false) return undefined;
  return failure.kind === 'refused' || pauseOf(entry, nowMs) !== undefined ? failure : undefined;
}

/** Returns the failure whose pause is not over. */
export function pauseOf({ audience: { outage }, failure }: Entry, nowMs: number): Failure | undefined {
  return [outage, failure].find((each) => each !== undefined && nowMs < each.retryAtMs);
}

/**
 * Returns the credential of another subject that is used for a subject because the issuer cannot be asked about it. After any answer there is none, since a newer
 * subject may be one that may do less. A subject that could not be asked about is asked about again in the background.
 */
export function standIn({ audience, held, failure, isUnanswered }: Entry, nowMs: number): Held | undefined {
  const { outage, entries } = audience;
  if (held !== undefined || failure !== undefined || outage?.kind !== 'unanswered') return undefined;
  if (nowMs >= outage.retryAtMs + (isUnanswered ? LAST_RETRY_MS : 0)) return undefined;
  return [...entries.values()].map((other) => usableIn(other, nowMs)).findLast((other) => other !== undefined);
}

/**
 * Returns the entry of the newest subject, or of an older one that was verified after the refusals of all newer ones. Makes it the present one.
 *
 * @param subjects the newest first.
 */
export function chosenIn(audience: Audience, subjects: readonly Proof[], nowMs: number): Entry {
  const { entries } = audience;
  let refusedAt = 0;
  const accepted = subjects.find((each) => {
    const refusal = refusalOf(entries.get(each), nowMs);
    refusedAt = Math.max(refusedAt, refusal?.verification ?? 0);
    return refusal === undefined && each.verification > refusedAt;
  });
  const subject = accepted ?? subjects[0];
  const entry = getOrMake(entries, subject, () => {
    for (const [former, { held, failure, acquiring }] of entries) {
      const isNeeded =
        (held !== undefined && nowMs < held.usableUntilMs) || failure !== undefined || acquiring !== undefined;
      if (!isNeeded || !subjects.some((each) => each === former)) entries.delete(former);
    }
    const none = { held: undefined, failure: undefined, acquiring: undefined };
    return { audience, subject, ...none, isUnanswered: false, renewableAtMs: 0 };
  });
  audience.present = entry;
  return entry;
}
