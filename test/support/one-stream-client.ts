import { pino } from 'pino';
import { readInput } from '../../src/downstream/classify.ts';
import { Peer } from '../../src/downstream/peer.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { rpc } from '../downstream/client.ts';
import type { TestCore } from './core.ts';

/** A client of 2024-11-05, which gets all messages on one stream. */
export interface OneStreamClient {
  /** The texts that it has got. */
  readonly sent: readonly string[];
  /** Sends a request with these credentials. */
  readonly request: (id: number, method: string, params: object | undefined, principal: Principal) => Promise<void>;
  readonly initialize: (principal: Principal) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Connects a client with one stream. */
export function oneStreamClient({ core }: Pick<TestCore, 'core'>, principal: Principal): OneStreamClient {
  const sent: string[] = [];
  const peer = new Peer({
    front: core.gateway,
    principal,
    view: '',
    sink: { send: (text) => sent.push(text) > 0 },
    log: pino({ level: 'silent' }),
    onLimit: () => undefined,
    onEnd: () => undefined,
  });
  const request: OneStreamClient['request'] = async (id, method, params, by) => {
    await peer.receive(readInput(rpc(id, method, params)), by);
  };
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  return { sent, request, initialize: (by) => request(0, 'initialize', params, by), close: () => peer.close() };
}
