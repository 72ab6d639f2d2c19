import { z } from 'zod';
import { LIMITS, type LimitName } from '../../limits.ts';
import { keyRecordSchema } from '../key-store.ts';
import { method, NOTHING } from './pipe-calls.ts';

const TEXT = z.string();
const MAYBE_TEXT = z.string().optional();

const isLimitName = (text: string): text is LimitName => Object.hasOwn(LIMITS, text);
const LIMIT = z.custom<LimitName>((value) => typeof value === 'string' && isLimitName(value));

const SESSION = z.object({ principal: TEXT, serial: z.number(), expiresMs: z.number() }).readonly();
const TEXTS = z.array(TEXT).readonly();
const RECORD = z
  .object({
    logLevel: TEXT.exactOptional(),
    subscriptions: TEXTS,
    upstreams: TEXTS.exactOptional(),
    attachments: z
      .array(z.object({ upstream: TEXT, text: TEXT }).readonly())
      .readonly()
      .exactOptional(),
  })
  .readonly();
const CHANGE = z.union([
  z.object({ kind: z.literal('level'), level: TEXT }).readonly(),
  z.object({ kind: z.enum(['subscribe', 'unsubscribe']), uri: TEXT }).readonly(),
  z.object({ kind: z.literal('use'), upstream: TEXT }).readonly(),
  z.object({ kind: z.literal('attach'), upstream: TEXT, text: TEXT }).readonly(),
]);
const PLACEMENT_KEY = z.object({ principal: TEXT, name: TEXT }).readonly();
const PLACEMENT = z.object({ member: TEXT, token: TEXT }).readonly();
const MEMBER = z
  .object({ id: TEXT, process: TEXT, address: TEXT, version: TEXT, isLeaving: z.boolean().exactOptional() })
  .readonly();
const MEMBERS = z.array(MEMBER).readonly();
const UPSTREAM = z.object({ upstream: TEXT, target: TEXT }).readonly();
const OFFER = z.object({ upstream: TEXT, target: TEXT, era: TEXT, capabilityKey: TEXT, audience: TEXT }).readonly();
const ADDRESS = z.object({ upstream: TEXT, task: TEXT, holder: TEXT }).readonly();
const TASK = z.object({ upstream: TEXT, task: TEXT, holder: TEXT, id: TEXT }).readonly();
const KEYED_CALL = z.object({ principal: TEXT, name: TEXT }).readonly();
const CLAIM = z.union([
  z.object({ kind: z.literal('claimed') }).readonly(),
  z.object({ kind: z.literal('running'), claim: TEXT }).readonly(),
  z
    .object({ kind: z.literal('ended'), outcome: MAYBE_TEXT })
    .transform(({ kind, outcome }) => ({ kind, outcome }))
    .readonly(),
  z.object({ kind: z.literal('full'), limit: z.enum(['keyedCalls', 'keyedCallsPerPrincipal']) }).readonly(),
]);

/** The operations of the stores of the parent, by the port that they belong to. */
export const STORES = {
  keys: {
    read: method('keys.read', NOTHING, z.array(keyRecordSchema.readonly()).readonly()),
    add: method('keys.add', z.object({ nowMs: z.number(), graceMs: z.number() }), NOTHING),
  },
  sessions: {
    nextSerial: method('sessions.nextSerial', TEXT, z.number()),
    load: method('sessions.load', SESSION, RECORD.optional()),
    /** `placement` is that of the session as its owner knows it. The answer `fenced` means that it is not the current one. */
    change: method(
      'sessions.change',
      z.object({ session: SESSION, change: CHANGE, placement: MAYBE_TEXT }),
      z.union([LIMIT, z.literal('fenced')]).optional(),
    ),
    end: method('sessions.end', SESSION, z.boolean()),
    isEnded: method('sessions.isEnded', SESSION, z.boolean()),
  },
  offers: {
    read: method('offers.read', OFFER, MAYBE_TEXT),
    write: method('offers.write', z.object({ key: OFFER, text: TEXT }), NOTHING),
    remove: method('offers.remove', OFFER, NOTHING),
    hasFailed: method('offers.hasFailed', UPSTREAM, z.boolean()),
    setFailed: method('offers.setFailed', z.object({ key: UPSTREAM, hasFailed: z.boolean() }), NOTHING),
    listedAtMs: method('offers.listedAtMs', UPSTREAM, z.number().optional()),
    setListed: method('offers.setListed', UPSTREAM, NOTHING),
  },
  tasks: {
    list: method('tasks.list', TEXT, z.array(TASK).readonly()),
    add: method('tasks.add', z.object({ client: TEXT, task: TASK }), NOTHING),
    remove: method('tasks.remove', z.object({ client: TEXT, address: ADDRESS }), NOTHING),
  },
  keyedCalls: {
    claim: method('keyedCalls.claim', z.object({ call: KEYED_CALL, claim: TEXT, keepMs: z.number() }), CLAIM),
    end: method(
      'keyedCalls.end',
      z.object({ call: KEYED_CALL, claim: TEXT, outcome: MAYBE_TEXT, keepMs: z.number() }),
      NOTHING,
    ),
    release: method('keyedCalls.release', z.object({ call: KEYED_CALL, claim: TEXT }), NOTHING),
  },
  outcomes: {
    settle: method('outcomes.settle', z.object({ id: TEXT, outcome: TEXT, ttlMs: z.number() }), z.boolean()),
    find: method('outcomes.find', TEXT, MAYBE_TEXT),
  },
  placements: {
    join: method('placements.join', MEMBER, NOTHING),
    renew: method('placements.renew', TEXT, MEMBERS.optional()),
    leave: method('placements.leave', TEXT, NOTHING),
    members: method('placements.members', NOTHING, MEMBERS),
    claim: method('placements.claim', z.object({ key: PLACEMENT_KEY, member: TEXT, from: MAYBE_TEXT }), PLACEMENT),
    confirm: method('placements.confirm', z.object({ key: PLACEMENT_KEY, placement: PLACEMENT }), z.boolean()),
    release: method(
      'placements.release',
      z.object({ key: PLACEMENT_KEY, placement: PLACEMENT, formerMs: z.number() }),
      NOTHING,
    ),
    former: method('placements.former', PLACEMENT_KEY, MAYBE_TEXT),
    revoke: method('placements.revoke', PLACEMENT_KEY, NOTHING),
    watch: method('placements.watch', TEXT, NOTHING),
    unwatch: method('placements.unwatch', TEXT, NOTHING),
  },
  counters: {
    lease: method(
      'counters.lease',
      z.object({ counter: TEXT, process: TEXT, wanted: z.number(), limit: z.number() }),
      z.number(),
    ),
  },
  rates: {
    take: method(
      'rates.take',
      z.object({ counter: TEXT, units: z.number(), limit: z.number(), windowMs: z.number() }),
      z.object({ units: z.number(), endsInMs: z.number() }).readonly(),
    ),
  },
} as const;

/** The messages of the parent to its workers. */
export const STORE_NOTICES = {
  /** A placement of this member was revoked. */
  revoked: method('notices.revoked', z.object({ member: TEXT, key: PLACEMENT_KEY }), NOTHING),
  /** Another worker has written these lists. */
  offerWritten: method('notices.offerWritten', OFFER, NOTHING),
  /** The ring has another key. */
  ringChanged: method('notices.ringChanged', NOTHING, NOTHING),
  /** The reason why the state cannot be written, in words; undefined when it can be written again. */
  stateFailure: method('notices.stateFailure', MAYBE_TEXT, NOTHING),
} as const;
