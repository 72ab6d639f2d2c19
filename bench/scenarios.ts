import type { Ask, Revision } from './dialect.ts';

/** The fixture behind the subject. */
export type UpstreamKind =
  | { readonly kind: 'http' }
  /** `shared`: one process for all sessions. `session`: one per session. */
  | { readonly kind: 'stdio'; readonly isolation: 'shared' | 'session' };

export interface Scenario {
  readonly id: string;
  readonly title: string;
  /** The revision of the clients. */
  readonly client: Revision;
  /** The revision of the fixture; default 2025-11-25. */
  readonly speaks?: Revision;
  readonly upstream: UpstreamKind;
  readonly ask: Ask;
  /** Requests per second over all connections. Without it, each connection sends the next request after each answer. */
  readonly ratePerSecond?: number;
  /** The subject that the others are compared with. */
  readonly baseline: string;
}

const HTTP = { client: '2025-11-25', upstream: { kind: 'http' }, baseline: 'nginx' } as const;
const STDIO = {
  client: '2025-11-25',
  upstream: { kind: 'stdio', isolation: 'shared' },
  baseline: 'bare',
} as const;

const MODERN = { client: '2026-07-28', speaks: '2026-07-28' } as const;

export const SCENARIOS: readonly Scenario[] = [
  { ...HTTP, id: 'small', title: 'tools/call, 64 B', ask: { method: 'tools/call', tool: 'small' } },
  {
    ...HTTP,
    id: 'modern',
    ...MODERN,
    title: 'tools/call, 64 B, 2026-07-28 on both sides',
    ask: { method: 'tools/call', tool: 'small' },
  },
  {
    ...HTTP,
    id: 'modern-client',
    title: 'tools/call, 64 B, from 2026-07-28 to 2025-11-25',
    client: '2026-07-28',
    ask: { method: 'tools/call', tool: 'small' },
    baseline: 'gateway',
  },
  {
    ...HTTP,
    id: 'modern-upstream',
    title: 'tools/call, 64 B, from 2025-11-25 to 2026-07-28',
    speaks: '2026-07-28',
    ask: { method: 'tools/call', tool: 'small' },
    baseline: 'gateway',
  },
  {
    ...HTTP,
    id: 'modern-list',
    ...MODERN,
    title: 'tools/list, 23 tools, 2026-07-28 on both sides',
    ask: { method: 'tools/list' },
  },
  {
    ...HTTP,
    ...MODERN,
    id: 'modern-10kb',
    title: 'tools/call, 10 kB, 2026-07-28 on both sides',
    ask: { method: 'tools/call', tool: 'text_10kb' },
  },
  {
    ...HTTP,
    ...MODERN,
    id: 'modern-sse',
    title: 'tools/call, 64 B, as an event, 2026-07-28 on both sides',
    ask: { method: 'tools/call', tool: 'sse' },
  },
  {
    ...HTTP,
    ...MODERN,
    id: 'modern-progress',
    title: 'tools/call, 64 B, after an event of progress, 2026-07-28 on both sides',
    ask: { method: 'tools/call', tool: 'progress' },
  },
  {
    ...STDIO,
    ...MODERN,
    id: 'modern-stdio',
    title: 'tools/call, 64 B, one process, 2026-07-28 on both sides',
    ask: { method: 'tools/call', tool: 'small' },
    baseline: 'gateway-legacy',
  },
  { ...HTTP, id: '10kb', title: 'tools/call, 10 kB', ask: { method: 'tools/call', tool: 'text_10kb' } },
  { ...HTTP, id: '100kb', title: 'tools/call, 100 kB', ask: { method: 'tools/call', tool: 'text_100kb' } },
  { ...HTTP, id: 'list', title: 'tools/list, 23 tools', ask: { method: 'tools/list' } },
  { ...HTTP, id: 'sse', title: 'tools/call, 64 B, as an event', ask: { method: 'tools/call', tool: 'sse' } },
  {
    ...HTTP,
    id: 'progress',
    title: 'tools/call, 64 B, after an event of progress',
    ask: { method: 'tools/call', tool: 'progress' },
  },
  {
    ...HTTP,
    id: 'paced',
    title: 'tools/call, 64 B, 500 a second',
    ask: { method: 'tools/call', tool: 'small' },
    ratePerSecond: 500,
  },
  { ...STDIO, id: 'stdio', title: 'tools/call, 64 B, one process', ask: { method: 'tools/call', tool: 'small' } },
  {
    ...STDIO,
    id: 'stdio-100kb',
    title: 'tools/call, 100 kB, one process',
    ask: { method: 'tools/call', tool: 'text_100kb' },
  },
  {
    ...STDIO,
    id: 'stdio-session',
    title: 'tools/call, 64 B, a process per session',
    upstream: { kind: 'stdio', isolation: 'session' },
    ask: { method: 'tools/call', tool: 'small' },
  },
];

/** A bound on the CPU per request of one subject, as a multiple of another's in the same round. */
export interface Target {
  readonly scenario: string;
  readonly subject: string;
  readonly of: string;
  readonly atMost: number;
}

export const TARGETS: readonly Target[] = [
  { scenario: 'small', subject: 'gateway', of: 'nginx', atMost: 2.4 },
  { scenario: 'list', subject: 'gateway', of: 'nginx', atMost: 1.5 },
  { scenario: 'stdio', subject: 'gateway', of: 'bare', atMost: 1.4 },
  { scenario: 'small', subject: 'gateway', of: 'sdk', atMost: 1 / 8 },
  { scenario: 'modern', subject: 'gateway', of: 'gateway-legacy', atMost: 1.15 },
  { scenario: 'modern', subject: 'gateway-redis', of: 'gateway', atMost: 1.3 },
  { scenario: 'small', subject: 'gateway-jwt', of: 'gateway', atMost: 1.1 },
  { scenario: 'small', subject: 'gateway-guarded', of: 'gateway-jwt', atMost: 1.2 },
  ...['small', 'stdio'].flatMap((scenario) => [
    { scenario, subject: 'gateway-redis', of: 'gateway', atMost: 2 },
    { scenario, subject: 'gateway-forwarded', of: 'gateway-redis', atMost: 2.5 },
  ]),
  ...['small', 'list', 'stdio', 'sse'].map((scenario) => ({
    scenario,
    subject: 'gateway',
    of: 'gateway-before',
    atMost: 1.03,
  })),
];
