import type { Mode } from './clients/client.ts';

/** A check that passes directly and fails through the gateway, for a reason that the gateway cannot change. */
export interface KnownLoss {
  readonly check: string;
  readonly mode: Mode;
  readonly servers: readonly string[];
  readonly why: string;
  /** True if the check depends on timing, so that it passes sometimes. */
  readonly isRace: boolean;
}

/** A run fails if one of these passes and is no race, so that the list stays current. */
export const KNOWN_LOSSES: readonly KnownLoss[] = [
  {
    check: 'is asked for its name by a result',
    mode: 'modern',
    servers: ['python2-sse', 'fastmcp4-sse'],
    why: 'HTTP+SSE is a transport of 2024-11-05, so the gateway speaks sessions over it; the SDK answers server/discover there',
    isRace: false,
  },
  {
    check: 'gets the notification that tools changed',
    mode: 'modern',
    servers: ['go-stdio'],
    why: 'the Go SDK 1.8.0 drops all list subscriptions of a stdio connection when any one subscriptions/listen on it ends',
    isRace: true,
  },
];

export function knownLoss(server: string, mode: Mode, check: string): KnownLoss | undefined {
  return KNOWN_LOSSES.find((one) => one.check === check && one.mode === mode && one.servers.includes(server));
}
