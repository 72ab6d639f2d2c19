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
const ADDRESS = z.object({ upstream: TEXT, task: TEXT, holder: TEXT, run: TEXT }).readonly();
const TASK = z.object({ upstream: TEXT, task: TEXT, holder: TEXT, run: TEXT, id: TEXT }).readonly();
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

/** The methods of the stores of the parent, with the arguments of their ports. */
export const STORES = {
  keys: {
    read: method('keys.read', z.tuple([]), z.array(keyRecordSchema.readonly()).readonly()),
    add: method('keys.add', z.tuple([z.number(), z.number()]), NOTHING),
  },
  sessions: {
    nextSerial: method('sessions.nextSerial', z.tuple([TEXT]), z.number()),
    load: method('sessions.load', z.tuple([SESSION]), RECORD.optional()),
    /** The last argument is the placement of the session as its owner knows it. The answer `fenced` means that it is not the current one. */
    change: method(
      'sessions.change',
      z.tuple([SESSION, CHANGE, MAYBE_TEXT]),
      z.union([LIMIT, z.literal('fenced')]).optional(),
    ),
    end: method('sessions.end', z.tuple([SESSION]), z.boolean()),
    isEnded: method('sessions.isEnded', z.tuple([SESSION]), z.boolean()),
  },
  offers: {
    read: method('offers.read', z.tuple([OFFER]), MAYBE_TEXT),
    write: method('offers.write', z.tuple([OFFER, TEXT]), NOTHING),
    remove: method('offers.remove', z.tuple([OFFER]), NOTHING),
    hasFailed: method('offers.hasFailed', z.tuple([UPSTREAM]), z.boolean()),
    setFailed: method('offers.setFailed', z.tuple([UPSTREAM, z.boolean()]), NOTHING),
    listedAtMs: method('offers.listedAtMs', z.tuple([UPSTREAM]), z.number().optional()),
    setListed: method('offers.setListed', z.tuple([UPSTREAM]), NOTHING),
  },
  tasks: {
    list: method('tasks.list', z.tuple([TEXT]), z.array(TASK).readonly()),
    add: method('tasks.add', z.tuple([TEXT, TASK]), NOTHING),
    remove: method('tasks.remove', z.tuple([TEXT, ADDRESS]), NOTHING),
  },
  keyedCalls: {
    claim: method('keyedCalls.claim', z.tuple([KEYED_CALL, TEXT, z.number()]), CLAIM),
    end: method('keyedCalls.end', z.tuple([KEYED_CALL, TEXT, MAYBE_TEXT, z.number()]), NOTHING),
    release: method('keyedCalls.release', z.tuple([KEYED_CALL, TEXT]), NOTHING),
  },
  outcomes: {
    settle: method('outcomes.settle', z.tuple([TEXT, TEXT, z.number()]), z.boolean()),
    find: method('outcomes.find', z.tuple([TEXT]), MAYBE_TEXT),
  },
  placements: {
    join: method('placements.join', z.tuple([MEMBER]), NOTHING),
    renew: method('placements.renew', z.tuple([TEXT]), MEMBERS.optional()),
    leave: method('placements.leave', z.tuple([TEXT]), NOTHING),
    members: method('placements.members', z.tuple([]), MEMBERS),
    claim: method('placements.claim', z.tuple([PLACEMENT_KEY, TEXT, MAYBE_TEXT]), PLACEMENT),
    confirm: method('placements.confirm', z.tuple([PLACEMENT_KEY, PLACEMENT]), z.boolean()),
    release: method('placements.release', z.tuple([PLACEMENT_KEY, PLACEMENT, z.number().optional()]), NOTHING),
    former: method('placements.former', z.tuple([PLACEMENT_KEY]), MAYBE_TEXT),
    revoke: method('placements.revoke', z.tuple([PLACEMENT_KEY]), NOTHING),
    watch: method('placements.watch', z.tuple([TEXT]), NOTHING),
    unwatch: method('placements.unwatch', z.tuple([TEXT]), NOTHING),
  },
  counters: {
    lease: method('counters.lease', z.tuple([TEXT, TEXT, z.number(), z.number()]), z.number()),
  },
  rates: {
    take: method(
      'rates.take',
      z.tuple([TEXT, z.number(), z.number(), z.number()]),
      z.object({ units: z.number(), endsInMs: z.number() }).readonly(),
    ),
  },
} as const;

/** The reason why the state cannot be written, as {@link STORE_NOTICES} has it. A worker asks for it when it starts. */
export const STATE_FAILURE = method('state.failure', NOTHING, MAYBE_TEXT);

/** The messages of the parent to its workers. */
export const STORE_NOTICES = {
  /** A placement of this member was revoked. */
  revoked: method('notices.revoked', z.object({ member: TEXT, key: PLACEMENT_KEY }), NOTHING),
  /** Another worker has written these lists. */
  offerWritten: method('notices.offerWritten', OFFER, NOTHING),
  /** The reason why the state cannot be written, in words; undefined when it can be written again. */
  stateFailure: method('notices.stateFailure', MAYBE_TEXT, NOTHING),
} as const;
